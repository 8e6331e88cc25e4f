"""Golden files of tests/models: named arrays as safetensors."""
import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/models/golden"


def save(case, tensors, metadata):
    """FOLDER/case.safetensors: u64 header length, JSON header padded to 8 bytes, data in name order."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = {"float32": "F32", "int32": "I32"}
    header, offset = {"__metadata__": metadata}, 0
    for name in sorted(tensors):
        t = tensors[name]
        header[name] = dict(dtype=names[str(t.dtype)], shape=list(t.shape), data_offsets=[offset, offset + t.nbytes])
        offset += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (FOLDER / f"{case}.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(tensors[n].tobytes() for n in sorted(tensors)))
