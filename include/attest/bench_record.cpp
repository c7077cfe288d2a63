// SPDX-License-Identifier: Apache-2.0
#include "attest/bench_record.hpp"

#include <string_view>
#include <unordered_map>

namespace attest {

std::vector<BenchSeries> series_of(const BenchRecord& record) {
  std::vector<BenchSeries> all;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const BenchSample& sample : record.benchmarks) {
    const auto [place, is_new] = places.emplace(sample.name, all.size());
    if (is_new) all.push_back({&sample, {}, 0});
    BenchSeries& series = all[place->second];
    if (sample.dropped)
      ++series.dropped;
    else
      series.seconds.push_back(sample.real_time * 1e-9 * sample.yardstick);
  }
  return all;
}

}  // namespace attest
