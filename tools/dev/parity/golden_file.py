"""Named arrays as safetensors: the golden files of tests/models, and checkpoints."""
import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tests/models/golden"
TYPES = {"float32": "F32", "int32": "I32"}


def read(path):
    """{name: (type, shape, bytes)} and the metadata of a file."""
    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    metadata = header.pop("__metadata__", {})
    return {name: (e["dtype"], e["shape"], content[start + e["data_offsets"][0]:start + e["data_offsets"][1]])
            for name, e in header.items()}, metadata


def save(file, tensors, metadata, case=""):
    """FOLDER/file.safetensors: u64 header length, JSON header padded to 8 bytes, data in name order. If the file has several
    cases, the names of each begin with "case/", and those of the other cases are kept."""
    path, prefix = FOLDER / f"{file}.safetensors", f"{case}/" if case else ""
    arrays, notes = read(path) if case and path.exists() else ({}, {})
    arrays = {name: a for name, a in arrays.items() if not name.startswith(prefix)}
    arrays.update({prefix + name: (TYPES[str(t.dtype)], list(t.shape), t.tobytes()) for name, t in tensors.items()})
    header = {"__metadata__": {**notes, **{prefix + name: text for name, text in metadata.items()}}}
    data = b""
    for name, (dtype, shape, content) in sorted(arrays.items()):
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(content)])
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
