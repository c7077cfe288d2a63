# SPDX-License-Identifier: Apache-2.0
"""attest probe on kernels that follow one convention each, out of the library of planted faults: it must name that one."""
import pathlib
import tempfile

from command import ATTEST, expect, finish, record_of, run

LIBRARY = pathlib.Path(ATTEST).parent / "lib/attest-faulty/faulty.so"
# kernel, what is asked, what must be answered, and a word that the declaration must have (or not have: "-word").
# The conventions are those of docs/semantics.md, section 8, that a forward call can show; and what backward and decode take.
CONVENTIONS = [
    ("stepwise", "feature causal", "right", "features=all"),
    ("causal_top_left", "feature align_bottom_right", "acts as: top_left", "align=top_left,q_offset"),
    ("causal_top_left", "feature causal", "right", "-align=bottom_right"),
    ("causal_top_left", "feature alibi_signed", "right", "alibi=absolute,signed,key_anchored"),
    ("top_left_as_bottom_right", "feature align_top_left", "acts as: bottom_right", "align=bottom_right,q_offset"),
    ("window_exclusive", "feature window_left", "exclusive bound", "window_bound=exclusive"),
    ("mask_polarity_inverted", "feature mask", "true = drop", "mask_polarity=drop"),
    ("lse_base_2", "lse base", "2", "lse_base=2"),
    ("lse_base_2", "head_dim", "1..256", "head_dim=1..256"),
    ("sink_not_in_lse", "feature sink", "acts as: in o, not in lse", "-sink"),
    ("nan_row_lse_pos_inf", "NaN row, lse", "pos_inf", ""),
    ("stepwise", "NaN row, lse", "nan", ""),
    ("stepwise", "empty row, o", "zero", ""),
    ("empty_row_nan", "empty row, o", "nan", "empty_row=nan"),
    ("empty_row_mean_v", "empty row, o", "mean_v", "empty_row=mean_v"),
    ("empty_row_unwritten", "empty row, o", "unwritten", "empty_row=unspecified"),
    ("empty_lse_pos_inf", "empty row, lse", "pos_inf", "empty_lse=pos_inf"),
    ("empty_lse_zero", "empty row, lse", "zero", "empty_lse=zero"),
    ("empty_lse_lowest", "empty row, lse", "very low", "empty_lse=unspecified"),
    ("padding_unwritten", "feature seqlens_q", "unwritten padding", "padding_row=unspecified"),
    ("lengths_as_counts", "lengths with a left pad", "real_count", "lengths=real_count"),
    ("alibi_absolute_for_signed", "feature alibi_signed", "acts as: absolute", "alibi=absolute,key_anchored"),
    ("alibi_signed_for_absolute", "feature alibi_absolute", "acts as: signed", "alibi=signed,key_anchored"),
    ("alibi_never_inside_softcap", "feature alibi_inside_softcap", "acts as: outside", "-alibi_inside_softcap"),
    ("rope_pairing", "feature rope_interleaved", "acts as: half", "-rope=interleaved"),
    ("rope_pairing", "feature rope_half", "acts as: interleaved", "-rope=half"),
    ("gqa_modulo", "feature gqa", "acts as: h mod Hkv", "-gqa"),
    ("user_scale_ignored", "feature scale", "acts as: ignored", "-scale"),
    ("scale_sign_lost", "feature scale_nonpositive", "acts as: sign lost", "-scale_nonpositive"),
    ("softcap_after_mask", "feature softcap", "acts as: after the mask", "-softcap"),
    ("prefix_ignored", "feature prefix", "acts as: causal", "-prefix"),
    ("stepwise", "backward", "refused", "-backward"),
    ("stepwise", "decode, ring cache", "refused", ""),
    ("backward", "backward", "right", "backward=bias,slopes,sink,lse"),
    ("backward", "backward, dBias", "right", ""),
    ("delta_dropped", "backward", "accepted and wrong", "-backward"),
    ("d_bias_scaled", "backward, dBias", "accepted and wrong", "backward=slopes,sink,lse"),
    ("decode", "decode, ring cache", "right", "cache=contiguous,ring,paged"),
    ("decode", "decode, keys after RoPE", "right", "cache_keys=raw,rotated"),
    ("decode", "decode, number of splits", "right", "splits"),
    ("decode", "decode, page size", "any", ""),
]


def main():
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        for kernel in sorted({row[0] for row in CONVENTIONS}):
            path = pathlib.Path(folder) / "probe.json"
            run("probe", f"{LIBRARY}#{kernel}.f32", "--json", path, check=0)
            reports[kernel] = record_of(path)
    for kernel, topic, answer, word in CONVENTIONS:
        report = reports[kernel]
        found = {finding["topic"]: finding["answer"] for finding in report["findings"]}
        expect(found.get(topic) == answer, f"{kernel}: {topic}: {found.get(topic)!r}, not {answer!r}")
        words = report["declaration"].split()
        missing = word[1:] in words if word.startswith("-") else word not in words
        expect(not word or not missing, f"{kernel}: '{word}' and the declaration {report['declaration']}")


main()
finish()
