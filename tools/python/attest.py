# SPDX-License-Identifier: Apache-2.0
"""Attest from Python: `attest check FILE.py::NAME` runs this beside the function that it names.

    import attest

    @attest.subject(dtypes=["f32"], promises=["deterministic"])
    def attention(q, k, v, causal=False): ...

The standard library alone; numpy or torch where the function's own file imports them. What the function's parameters
mean, and what it is taken to declare: docs/python.md.
"""
import array
import importlib
import importlib.util
import inspect
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import traceback

__all__ = ["Unsupported", "assert_close", "subject"]

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U8": 1, "I32": 4}
# What the array module calls them; None: 16 bits that it has no number for.
CODES = {"F64": "d", "F32": "f", "F16": None, "BF16": None, "U8": "B", "I32": "i"}
NUMPY = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "uint16", "U8": "uint8", "I32": "int32"}
OF_NUMPY = {kind: name for name, kind in NUMPY.items()}

# What a function's parameters may be called, and what each makes declared ("": nothing by itself).
PARAMETERS = {
    "q": "", "k": "", "v": "", "dtype": "", "num_threads": "", "base": "", "align": "", "window_left": "",
    "window_right": "", "causal": "base=full,causal", "mask": "mask", "bias": "bias", "scale": "scale",
    "softcap": "softcap", "sink": "sink", "alibi_slopes": "alibi=absolute", "seqlens_q": "seqlens_q",
    "seqlens_k": "seqlens_k",
}
# Tensors of a call that are there only where a feature is used.
TENSORS = {"mask": "mask", "bias": "bias", "blocks": "blocks", "keep": "dropout", "sink": "sink",
           "alibi_slopes": "alibi", "seqlens_q": "seqlens_q", "seqlens_k": "seqlens_k", "left_pad_q": "left_pad_q",
           "left_pad_k": "left_pad_k", "cu_seqlens_q": "packed", "rope_cos": "rope"}


class Unsupported(Exception):
    """Raise this for a problem that the function does not serve: it is refused, which is no failure."""


class Nonsense(Exception):
    """A function that cannot be served, or an output that cannot be one: one line says why."""


def subject(function=None, *, name=None, version=None, dtypes=None, head_dims=None, layout=None, promises=(),
            declaration=None, precision=None, outputs=("o",)):
    """Says what a function declares where its parameters do not.

    name, version   as reports call it; default: the function's name
    dtypes          of "f64", "f32", "f16", "bf16"; default: f32
    head_dims       as in a declaration, "8..256%8"
    layout          "bhld": arrays [B, H, L, D]; "blhd": [B, L, H, D]; "ld": two-dimensional ones, a call for each head; default: tried
    precision       a preset of docs/declaration.md, for every type
    promises        of deterministic, batch_invariant, thread_invariant, masked_nan_safe
    outputs         what it returns: ("o",) or ("o", "lse")
    declaration     all of it, as text, in place of dtypes, head_dims, precision and promises; "": it is probed
    """
    def mark(marked):
        marked.attest_subject = {"name": name, "version": version, "dtypes": dtypes, "head_dims": head_dims,
                                 "layout": layout, "promises": tuple(promises), "declaration": declaration,
                                 "precision": precision, "outputs": tuple(outputs)}
        return marked
    return mark(function) if function else mark


# Messages -------------------------------------------------------------------------------------------------------------

class Tensor:
    """Bytes of a message, row-major."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), data


def read_exactly(fd, count):
    parts = []
    while count > 0:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_request(fd):
    """Metadata and tensors of the next request; None where the suite is done."""
    length = read_exactly(fd, 8)
    blob = read_exactly(fd, struct.unpack("<Q", length)[0]) if length else None
    if blob is None:
        return None
    header_bytes = struct.unpack_from("<Q", blob)[0]
    header = json.loads(blob[8:8 + header_bytes])
    data = memoryview(blob)[8 + header_bytes:]
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = Tensor(entry["dtype"], entry["shape"], data[begin:end])
    return header["__metadata__"], tensors


def blob_of(metadata, tensors):
    """The bytes of a safetensors file."""
    header, at = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *(bytes(tensor.data) for tensor in tensors.values())])


def write_answer(fd, metadata, tensors):
    blob = blob_of(metadata, tensors)
    view = memoryview(struct.pack("<Q", len(blob)) + blob)
    while view:
        view = view[os.write(fd, view):]


# Arrays of three kinds: what the function's file imports decides ------------------------------------------------------

def to_nested(values, shape):
    if not shape:
        return values[0]
    if len(shape) == 1:
        return list(values)
    step = math.prod(shape[1:])
    return [to_nested(values[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]


def flatten(nested, shape, name):
    """The numbers of nested lists, which must have the shape."""
    level = [nested]
    for extent in shape:
        if any(not hasattr(one, "__len__") or len(one) != extent for one in level):
            raise Nonsense(f"{name} has not the shape {list(shape)} that is asked for")
        level = [inner for one in level for inner in one]
    return level


def half_values(data):
    return list(struct.unpack(f"<{len(data) // 2}e", data))


def bf16_values(data):
    words = array.array("H", bytes(data))
    return list(array.array("f", b"".join(struct.pack("<I", word << 16) for word in words)))


def bf16_word(value):
    """Rounded once, to nearest even: the quotient is exact, and round() goes to even."""
    if value != value:
        return 0x7FC0
    if math.isfinite(value) and value != 0:
        quantum = math.ldexp(1, max(math.frexp(value)[1] - 8, -133))
        value = math.copysign(round(value / quantum) * quantum, value)
    return struct.unpack("<I", struct.pack("<f", single(value)))[0] >> 16


def half_bytes(value):
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", math.copysign(math.inf, value))


def single(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


class Lists:
    """Plain Python: nested lists of numbers."""

    def make(self, tensor):
        if tensor.dtype == "F16":
            values = half_values(tensor.data)
        elif tensor.dtype == "BF16":
            values = bf16_values(tensor.data)
        else:
            values = array.array(CODES[tensor.dtype], bytes(tensor.data))
        return to_nested(values, tensor.shape)

    def take(self, value, dtype, shape, name):
        """A tensor of this type and shape."""
        try:
            return Tensor(dtype, shape, self.encoded(flatten(value, shape, name), dtype))
        except TypeError as error:
            raise Nonsense(f"{name}: {error}") from None

    def encoded(self, values, dtype):
        if dtype in ("U8", "I32"):
            return array.array(CODES[dtype], [int(one) for one in values]).tobytes()
        values = [float(one) for one in values]
        if dtype == "BF16":
            return array.array("H", map(bf16_word, values)).tobytes()
        if dtype == "F16":
            return b"".join(map(half_bytes, values))
        if dtype == "F32":
            return array.array("f", map(single, values)).tobytes()
        return array.array("d", values).tobytes()


class Numpy:
    def __init__(self, numpy):
        self.numpy = numpy

    def make(self, tensor):
        made = self.numpy.frombuffer(tensor.data, dtype=NUMPY[tensor.dtype]).reshape(tensor.shape)
        made = made.copy()  # writable, and nobody else's
        return made.astype(bool) if tensor.dtype == "U8" else made

    def take(self, value, dtype, shape, name):
        got = self.numpy.asarray(value)
        if got.dtype.kind == "f" and got.dtype.itemsize > SIZES[dtype] and dtype != "BF16":
            got = got.astype(NUMPY[dtype])  # wider than asked for, as numpy 2 makes of f32 / np.sqrt(64)
        return Tensor(OF_NUMPY.get(str(got.dtype), str(got.dtype)), got.shape, self.numpy.ascontiguousarray(got).tobytes())


class Torch:
    def __init__(self, torch):
        self.torch = torch
        self.types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
                      "U8": torch.uint8, "I32": torch.int32}
        self.names = {kind: name for name, kind in self.types.items()} | {torch.bool: "U8"}

    def make(self, tensor):
        if 0 in tensor.shape:
            made = self.torch.zeros(tensor.shape, dtype=self.types[tensor.dtype])
        else:
            made = self.torch.frombuffer(bytearray(tensor.data), dtype=self.types[tensor.dtype]).reshape(tensor.shape)
        return made.bool() if tensor.dtype == "U8" else made

    def take(self, value, dtype, shape, name):
        if not isinstance(value, self.torch.Tensor):
            raise Nonsense(f"{name} is a {type(value).__name__}, no tensor")
        got = value.detach().cpu().contiguous()
        data = got.reshape(-1).view(self.torch.uint8).numpy().tobytes() if got.numel() else b""
        return Tensor(self.names.get(got.dtype, str(got.dtype)), tuple(got.shape), data)


def arrays_for(function):
    """By what the function's own file has imported; a function of torch takes tensors of it."""
    if (getattr(function, "__module__", None) or "").split(".")[0] == "torch":
        return Torch(sys.modules["torch"])
    names = vars(sys.modules[function.__module__]).values() if function.__module__ in sys.modules else ()
    modules = {getattr(one, "__name__", "").split(".")[0] for one in names if inspect.ismodule(one)}
    if "torch" in modules:
        return Torch(sys.modules["torch"])
    if "numpy" in modules:
        return Numpy(sys.modules["numpy"])
    return Lists()


# Grading in place ---------------------------------------------------------------------------------------------------

def as_tensor(value, name, dtype):
    """A message's tensor of a numpy array, a torch tensor, or nested lists, which are of `dtype`."""
    kind = type(value).__module__.split(".")[0]
    if kind == "torch":
        return Torch(sys.modules["torch"]).take(value, None, None, name)
    if kind == "numpy":
        numpy = sys.modules["numpy"]
        if value.dtype == bool:
            value = value.astype(numpy.uint8)
        if str(value.dtype) == "uint16" and dtype != "bf16":
            raise TypeError(f"{name} is uint16; the bits of bf16? Then say dtype='bf16'")
        if str(value.dtype) not in OF_NUMPY:
            raise TypeError(f"{name} is {value.dtype}, which no call has")
        return Tensor(OF_NUMPY[str(value.dtype)], value.shape, numpy.ascontiguousarray(value).tobytes())
    shape, level = [], value
    while hasattr(level, "__len__"):
        shape.append(len(level))
        level = level[0] if len(level) else None
    if not shape:
        raise TypeError(f"{name} is a {type(value).__name__}, no array")
    return Tensor(dtype.upper(), shape, Lists().encoded(flatten(value, shape, name), dtype.upper()))


def command():
    """The program, in a build tree, where it is installed, or in the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    for place in (os.environ.get("ATTEST_COMMAND"), os.path.join(here, "..", "..", "attest"),
                  os.path.join(here, "..", "..", "bin", "attest")):
        if place and os.access(place, os.X_OK) and not os.path.isdir(place):
            return place
    return "attest"


def assert_close(o, *, q, k, v, lse=None, causal=False, base=None, align=None, precision="f32", dtype="f32", **more):
    """Raises AssertionError, with what the verdict says, where o is not attention of q, k and v.

        o, q, k, v   [B, H, L, D], or without the first axes; numpy, torch, or lists of `dtype`
        causal       base="causal"; align must be said where queries and keys are not equally many
        base, align, scale, softcap, window_left, window_right, mask, bias, sink, seqlens_k, ...
                     as in attest/plugin.h; arrays and scalars alike
        precision    the arithmetic of the kernel, a preset of docs/declaration.md

    The expected values come from the definition, the tolerance of each element from the precision. ValueError where
    this is no legal call.
    """
    tensors = {"q": q, "k": k, "v": v, "o": o}
    if lse is not None:
        tensors["lse"] = lse
    metadata = {"precision": precision}
    scalars = {"base": base or ("causal" if causal else None), "align": align}
    for name, value in {**scalars, **more}.items():
        if value is None:
            continue
        if hasattr(value, "__len__") and not isinstance(value, str):
            tensors[name] = value
        else:
            metadata[name] = value if isinstance(value, str) else json.dumps(value)
    whole = ("seqlens_q", "seqlens_k", "left_pad_q", "left_pad_k", "cu_seqlens_q", "cu_seqlens_k", "q_offset", "prefix_len")
    made = {name: as_tensor(value, name, "i32" if name in whole else "u8" if name in ("mask", "blocks", "keep") else dtype)
            for name, value in tensors.items()}
    for name in ("q", "k", "v", "o"):
        made[name].shape = (1,) * (4 - len(made[name].shape)) + tuple(made[name].shape)
    if causal and align is None and made["q"].shape[2] != made["k"].shape[2]:
        raise ValueError("causal with other numbers of queries and keys: say align='bottom_right' or 'top_left'")
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(blob_of(metadata, made))
        file.flush()
        result = subprocess.run([command(), "grade", file.name], capture_output=True, text=True, check=False)
    if result.returncode == 1:
        raise AssertionError(result.stdout.strip())
    if result.returncode != 0:
        raise ValueError((result.stderr or result.stdout).strip().split(file.name + ": ")[-1])


# The function ---------------------------------------------------------------------------------------------------------

def load_function(place, name):
    if place.endswith(".py") or "/" in place:
        folder = os.path.dirname(os.path.abspath(place))
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(place))[0], place)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(place)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise Nonsense(f"{place} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise Nonsense(f"{place}::{name} cannot be called")
    return found


def is_in(number, text):
    """Whether a set of a declaration, "8,16..64%8", holds it."""
    for part in text.split(","):
        bounds, _, step = part.partition("%")
        first, _, last = bounds.partition("..")
        if part == "any" and number >= 1:
            return True
        if part != "any" and int(first) <= number <= int(last or first) and number % int(step or 1) == 0:
            return True
    return False


class Declared:
    """A declaration, as far as a call must be held against it."""

    def __init__(self, text):
        self.words = {}
        for word in text.split():
            key, _, value = word.partition("=")
            self.words[key] = value
        self.all = self.words.get("features") == "all"

    def has(self, key, value=None):
        if self.all and key != "dtype":
            return True
        if key not in self.words:
            return False
        return value is None or self.words[key] == "" or value in self.words[key].split(",")

    def refuses(self, metadata, tensors, outputs):
        """What of the call is not declared; None where all is."""
        q, k, v = (tensors[name].shape for name in ("q", "k", "v"))
        if not self.has("dtype", metadata["dtype"]):
            return f"dtype {metadata['dtype']}"
        if not is_in(q[3], self.words.get("head_dim", "any")):
            return f"head_dim {q[3]}"
        if v[3] != q[3] and not self.all and not is_in(v[3], self.words.get("v_head_dim", "0")):
            return f"v_head_dim {v[3]}"
        if q[1] != k[1] and not self.has("gqa"):
            return "fewer key heads than query heads"
        if 0 in q + k + v and not self.has("empty_dims"):
            return "an empty dimension"
        for tensor, feature in TENSORS.items():
            if tensor in tensors and not self.has(feature):
                return tensor
        if "lse" in outputs and not self.has("lse"):
            return "lse"
        if float(metadata.get("softcap", "0")) != 0 and not self.has("softcap"):
            return "softcap"
        # Rounded once there, twice here: one unit in the last place apart for some sizes.
        if q[3] > 0 and abs(float(metadata["scale"]) * math.sqrt(q[3]) - 1) > 1e-15 and not self.has("scale"):
            return "scale"
        if float(metadata["scale"]) <= 0 and not self.has("scale_nonpositive"):
            return "a scale of 0 or below"
        return self.refuses_positions(metadata, tensors, q[2] != k[2])

    def refuses_positions(self, metadata, tensors, unequal):
        base = metadata["base"]
        if base not in self.words.get("base", "full").split(",") and not self.all:
            return f"base={base}"
        window = False
        for side in ("left", "right"):
            if int(metadata.get("window_" + side, "-1")) >= 0:
                window = True
                if not self.has("window", side):
                    return "window_" + side
        if int(metadata.get("global_tokens", "0")) != 0 and not self.has("global_tokens"):
            return "global_tokens"
        for key in ("alibi", "rope"):
            if key in metadata and not self.has(key, metadata[key]):
                return f"{key}={metadata[key]}"
        positional = base != "full" or window or metadata.get("alibi", "key_anchored") != "key_anchored"
        ranges = any(name in tensors for name in ("seqlens_q", "seqlens_k", "left_pad_q", "left_pad_k", "cu_seqlens_q"))
        if (positional or "rope" in metadata) and (unequal or ranges or metadata["align"] == "q_offset"):
            if not self.has("align", metadata["align"]):
                return f"align={metadata['align']}"
        return None


class Like:
    """Names, layout and conventions of a known function, from a file in the folder `like`: other functions that take
    what it takes need no more than its name."""

    def __init__(self, name):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "like")
        known = sorted(entry[:-5] for entry in os.listdir(folder) if entry.endswith(".json"))
        if name not in known:
            raise Nonsense(f"no function is known as '{name}'; there are {', '.join(known)}")
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            self.said = json.load(file)

    def renamed(self, given):
        """A call's arguments as the function takes them."""
        for pair in self.said.get("apart", []):
            if all(given.get(name) is not None and given[name] is not False for name in pair):
                raise Unsupported(" and ".join(pair) + " do not go together")
        arguments = {}
        for name, value in given.items():
            target = self.said["arguments"].get(name)
            if target is None:
                continue  # what the declaration lacks is refused before
            if target in arguments:
                raise Unsupported(f"{name} beside another {target}")
            arguments[target] = value
        for target, names in self.said.get("tuples", {}).items():
            arguments[target] = tuple(given.get(name, -1) for name in names)
        return arguments


class Served:
    """A function with what it declares."""

    def __init__(self, place, name):
        name, _, like = name.partition("@")
        self.function = load_function(place, name)
        self.like = Like(like) if like else None
        said = getattr(self.function, "attest_subject", {})
        self.name = said.get("name") or getattr(self.function, "__name__", name)
        self.version = said.get("version") or "0"
        self.outputs = said.get("outputs") or (self.like.said["outputs"] if self.like else ("o",))
        self.arrays = arrays_for(self.function)
        self.parameters = self.read_parameters()
        self.layout = said.get("layout") or (self.like.said["layout"] if self.like else self.tried_layout())
        text = said.get("declaration")
        if self.like and text is None:
            text = self.like.said["declaration"]
        self.declaration = self.derived(said) if text is None else text
        self.declared = Declared(self.declaration)

    def read_parameters(self):
        if self.like:
            return None
        parameters = inspect.signature(self.function).parameters
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            return None  # takes everything by name
        for name in ("q", "k", "v"):
            if name not in parameters:
                raise Nonsense(f"{self.name} has no parameter {name}")
        for name, one in parameters.items():
            if one.default is one.empty and name not in PARAMETERS and one.kind is not one.VAR_POSITIONAL:
                raise Nonsense(f"{self.name} wants {name}, which no call has; there are {', '.join(PARAMETERS)}")
        return set(parameters)

    def takes(self, name):
        return self.parameters is None or name in self.parameters

    def gives(self, layout, q, k, v, shape):
        """Whether a call with arrays of these shapes returns this one."""
        self.layout = layout
        shapes = {"q": q, "k": k, "v": v}
        tensors = {name: Tensor("F32", of, array.array("f", [0.25] * math.prod(of)).tobytes())
                   for name, of in shapes.items()}
        metadata = {"scale": "0.5", "base": "full", "causal": "false", "align": "bottom_right"}
        try:
            outputs = self.run(metadata, tensors, {"o": {"dtype": "f32", "shape": shape}})
        except Exception:  # any: a function of another layout may raise what it likes
            return False
        return "o" in outputs and outputs["o"].shape == tuple(shape)

    def tried_layout(self):
        """Whether the function is one of four-dimensional arrays or of two-dimensional ones."""
        for layout in ("bhld", "ld"):
            if self.gives(layout, (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), (2, 3, 5, 4)):
                return layout
        return "bhld"  # the verdict shows what it raises

    def derived(self, said):
        if self.parameters is None:
            return ""  # the suite probes it
        words = ["dtype=" + ",".join(said.get("dtypes") or ["f32"])]
        if said.get("head_dims"):
            words.append("head_dim=" + said["head_dims"])
        if self.gives(self.layout, (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (2, 3, 5, 6)):
            words.append("v_head_dim=any")
        if self.layout == "bhld" and self.gives("bhld", (2, 4, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4), (2, 4, 5, 4)):
            words.append("gqa")
        words += [feature for parameter, feature in PARAMETERS.items() if parameter in self.parameters and feature]
        sides = [side for side in ("left", "right") if "window_" + side in self.parameters]
        if sides:
            words.append("window=" + ",".join(sides))
        if "causal" in self.parameters or sides:
            words.append("align=" + ("top_left,bottom_right" if "align" in self.parameters else "bottom_right"))
        if "lse" in self.outputs:
            words.append("lse")
        words.append("precision=" + (said.get("precision") or "f32"))
        words += said.get("promises") or ()
        return " ".join(words)

    def forward(self, metadata, tensors):
        """The outputs of one call, by name."""
        wanted = json.loads(metadata["outputs"])
        # Where nothing is declared, what it does with a call is what a probe wants to see.
        refused = self.declaration and self.declared.refuses(metadata, tensors, wanted)
        if refused:
            raise Unsupported(refused + " is not declared")
        return self.run(metadata, tensors, wanted)

    def run(self, metadata, tensors, wanted):
        arguments = {name: as_value(text) for name, text in metadata.items() if name not in ("id", "op", "outputs")}
        arguments.update((name, self.arrays.make(tensor)) for name, tensor in tensors.items())
        arguments = {name: value for name, value in arguments.items() if self.takes(name)}
        if self.layout == "blhd":
            for name in ("q", "k", "v"):
                arguments[name] = arguments[name].swapaxes(1, 2)
        if self.like:
            arguments["gqa"] = tensors["q"].shape[1] != tensors["k"].shape[1]
            arguments = self.like.renamed(arguments)
        results = self.head_by_head(arguments, tensors) if self.layout == "ld" else self.call(arguments)
        if self.layout == "blhd" and "o" in results:
            results["o"] = results["o"].swapaxes(1, 2)
        return {name: self.arrays.take(results[name], form["dtype"].upper(), tuple(form["shape"]), name)
                for name, form in wanted.items() if name in results}

    def call(self, arguments):
        returned = self.function(**arguments)
        if isinstance(returned, dict):
            return returned
        return dict(zip(self.outputs, returned if isinstance(returned, tuple) else (returned,)))

    def head_by_head(self, arguments, tensors):
        """For functions of two-dimensional arrays: one call for each sequence and head."""
        batch, heads = tensors["q"].shape[:2]
        rows = []
        for b in range(batch):
            row = []
            for h in range(heads):
                one = dict(arguments)
                one.update((name, arguments[name][b][h]) for name in ("q", "k", "v"))
                row.append(self.call(one))
            rows.append(row)
        return {name: self.stack([[one[name] for one in row] for row in rows]) for name in rows[0][0]}

    def stack(self, nested):
        if isinstance(self.arrays, Numpy):
            return self.arrays.numpy.array(nested)
        if isinstance(self.arrays, Torch):
            return self.arrays.torch.stack([self.arrays.torch.stack(row) for row in nested])
        return nested


def as_value(text):
    """Metadata holds texts: numbers and truth values as JSON writes them."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def told(error):
    """The traceback in short, what matters first: "ValueError: no (mine.py, line 7, in attention)"."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if frame.filename != __file__ and not frame.filename.startswith("<frozen")]
    places = [f"{os.path.basename(frame.filename)}, line {frame.lineno}, in {frame.name}" for frame in frames[::-1][:5]]
    return f"{type(error).__name__}: {error} ({'; from '.join(places)})"


def answer_call(served, metadata, tensors):
    if metadata["op"] != "forward":
        return {"status": "unsupported", "message": f"{metadata['op']} is not served"}, {}
    try:
        return {"status": "ok"}, served.forward(metadata, tensors)
    except (Unsupported, NotImplementedError) as error:
        return {"status": "unsupported", "message": str(error) or type(error).__name__}, {}
    except MemoryError:
        return {"status": "out_of_memory", "message": "MemoryError"}, {}
    except Nonsense as error:
        return {"status": "failed", "message": str(error)}, {}
    except Exception as error:
        # As a kernel of C would go: the suite sees a crash, shows this, and starts another process.
        print(told(error), file=sys.stderr, flush=True)
        os.abort()


def serve(word):
    to_suite = int(os.environ.get("ATTEST_WRITE_FD", "1"))
    from_suite = int(os.environ.get("ATTEST_READ_FD", "0"))
    if to_suite == 1:  # what the function prints is no answer
        to_suite = os.dup(1)
        os.dup2(2, 1)
    served, trouble = None, ""
    try:
        place, _, name = word.rpartition("::")
        served = Served(place, name)
    except Nonsense as error:
        trouble = str(error)
    except BaseException as error:  # whatever importing it may raise, SystemExit too
        trouble = told(error)
    while True:
        request = read_request(from_suite)
        if request is None:
            return 0
        metadata, tensors = request
        if metadata["op"] == "hello":
            answer = {"status": "failed", "message": trouble} if trouble else {
                "name": served.name, "version": served.version, "declaration": served.declaration}
            write_answer(to_suite, {"id": metadata["id"], **answer}, {})
            continue
        answer, outputs = answer_call(served, metadata, tensors)
        write_answer(to_suite, {"id": metadata["id"], **answer}, outputs)


if __name__ == "__main__":
    # Under its own name, so that a file which imports attest finds this one and not a second copy.
    sys.modules["attest"] = sys.modules["__main__"]
    if len(sys.argv) != 3 or sys.argv[1] != "serve":
        sys.exit("attest.py is started by attest check FILE.py::NAME")
    sys.exit(serve(sys.argv[2]))
