// Checksum of zip archives: CRC-32 with the polynomial 0xEDB88320. Node has this function from version 20.15 on.

/** Remainder of each byte. */
const remainders = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = (value & 1) === 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

/** Returns the checksum of all bytes so far. `before`: checksum of the bytes before these; 0: none. */
export function crc32(bytes: Uint8Array, before = 0): number {
  let value = ~before;
  for (const byte of bytes) value = (value >>> 8) ^ (remainders[(value ^ byte) & 0xff] as number);
  return ~value >>> 0;
}
