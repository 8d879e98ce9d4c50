"""FLAC files that hold far more audio than their size says: a constant in every subframe, at the highest rate."""

from __future__ import annotations

RATE, CHANNELS, BLOCK = 655_350, 8, 65_535


def packed_flac(seconds: float, size: int) -> bytes:
    """Return silence of so many seconds, at 655,350 Hz and 8 channels, with padding up to ``size`` bytes."""
    frames = int(seconds * RATE / BLOCK)
    total = frames * BLOCK
    bits = RATE << 44 | (CHANNELS - 1) << 41 | 15 << 36 | total
    info = BLOCK.to_bytes(2, "big") * 2 + bytes(6) + bits.to_bytes(8, "big") + bytes(16)
    audio = b"".join(_frame(number) for number in range(frames))
    room = max(0, size - 4 - 4 - len(info) - 4 - len(audio))
    padding = b"\x81" + room.to_bytes(3, "big") + bytes(room)
    return b"fLaC" + b"\0" + len(info).to_bytes(3, "big") + info + padding + audio


def _frame(number: int) -> bytes:
    # Block size and rate follow the head, in 16 bits; 8 channels of 16 bits.
    head = b"\xff\xf8" + bytes([0b0111_1110, 0b0111_1000])
    head += chr(number).encode("utf-8", "surrogatepass") + (BLOCK - 1).to_bytes(2, "big")
    head += (RATE // 10).to_bytes(2, "big")
    head += _crc(head, 8, 0x07).to_bytes(1, "big")
    frame = head + b"\0\0\0" * CHANNELS
    return frame + _crc(frame, 16, 0x8005).to_bytes(2, "big")


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    register, top, mask = 0, 1 << (bits - 1), (1 << bits) - 1
    for byte in data:
        register ^= byte << (bits - 8)
        for _ in range(8):
            register = (register << 1 ^ polynomial if register & top else register << 1) & mask
    return register
