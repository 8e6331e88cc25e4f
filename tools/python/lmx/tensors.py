"""Files of tensors: the format safetensors, read without its package."""
import json
import math
import struct
from pathlib import Path

from .files import LmxError, package, text_of

# Types of the format, and the numpy types of their bytes. numpy has no bf16.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U8": "u1", "BOOL": "?"}


def _header(file, path, size):
    """Returns the entries of the header and where the data begin. LmxError: the file is damaged."""
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length)) if length <= size - 8 else None
        entries = {name: (e["dtype"], tuple(e["shape"]), *e["data_offsets"]) for name, e in header.items()
                   if name != "__metadata__"}
        ends = [end for _, _, _, end in entries.values()]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as e:
        raise LmxError(f"{path} is no intact safetensors file: its header cannot be read") from e
    if max(ends, default=0) > size - 8 - length:
        raise LmxError(f"{path} is no intact safetensors file: it has {size - 8 - length} bytes of data, and its header "
                       f"describes {max(ends)}")
    return entries, 8 + length


def tensors(path):
    """Returns the tensors of a safetensors file as numpy arrays by name. bf16 becomes float32, which changes no value.
    LmxError: the file is missing or damaged."""
    path, numpy, found = Path(path), package("numpy", "reading tensors"), {}
    if not path.is_file():
        text_of(path)  # says what is missing
    with open(path, "rb") as file:
        entries, data = _header(file, path, path.stat().st_size)
        for name, (dtype, shape, begin, end) in entries.items():
            if dtype not in _TYPES:
                raise LmxError(f"{path}: tensor '{name}' has the type {dtype}, which is not supported")
            kind = numpy.dtype(_TYPES[dtype])
            if math.prod(shape) * kind.itemsize != end - begin:
                raise LmxError(f"{path}: tensor '{name}' {shape} {dtype} does not fill its {end - begin} bytes")
            file.seek(data + begin)
            array = numpy.fromfile(file, kind, math.prod(shape)).reshape(shape)
            if dtype == "BF16":  # the upper half of a float32
                array = (array.astype("<u4") << 16).view("<f4")
            found[name] = array
    return found
