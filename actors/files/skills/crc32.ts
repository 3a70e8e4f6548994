// CRC-32 of zip archives, with the polynomial 0xEDB88320. Node has a built-in function only from version 20.15 on.

/** CRC table: the remainder of each byte value. */
const remainders = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = (value & 1) === 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

/** Returns the checksum of all bytes so far. `before`: checksum of the preceding bytes; 0 = no preceding bytes. */
export function crc32(bytes: Uint8Array, before = 0): number {
  let value = ~before;
  for (const byte of bytes) value = (value >>> 8) ^ (remainders[(value ^ byte) & 0xff] as number);
  return ~value >>> 0;
}
