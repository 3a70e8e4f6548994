// Wheel builder for tests: a zip of uncompressed files with a RECORD. A test can also build an invalid wheel.
import { createHash } from "node:crypto";

interface WheelContents {
  readonly members: Readonly<Record<string, string>>;
  /** Hashes to write to RECORD instead of the real SHA-256 values, by file name. */
  readonly hashes?: Readonly<Record<string, string>>;
  readonly withoutRecord?: boolean;
}

export function buildWheel({ members, hashes = {}, withoutRecord = false }: WheelContents): Buffer {
  const lines = Object.entries(members).map(([name, content]) => {
    const hash = hashes[name] ?? createHash("sha256").update(content).digest("base64url");
    return `${name.includes(",") ? `"${name}"` : name},sha256=${hash},${content.length}`;
  });
  const record = { "pkg-1.0.dist-info/RECORD": `${lines.join("\n")}\npkg-1.0.dist-info/RECORD,,\n` };
  return buildZip({ ...members, ...(withoutRecord ? {} : record) });
}

function buildZip(members: Readonly<Record<string, string>>): Buffer {
  const local: Buffer[] = [];
  const central: Buffer[] = [];
  let offset = 0;
  for (const [name, content] of Object.entries(members)) {
    const data = Buffer.from(content);
    const nameBytes = Buffer.from(name);
    const shared = Buffer.alloc(26);
    shared.writeUInt16LE(20, 0);
    shared.writeUInt32LE(crc32(data), 10);
    shared.writeUInt32LE(data.length, 14);
    shared.writeUInt32LE(data.length, 18);
    shared.writeUInt16LE(nameBytes.length, 22);
    const header = Buffer.concat([Buffer.from("PK\x03\x04", "latin1"), shared, nameBytes, data]);
    const entry = Buffer.alloc(14);
    entry.writeUInt32LE(offset, 10);
    central.push(Buffer.from("PK\x01\x02\x14\x00", "latin1"), shared, entry, nameBytes);
    local.push(header);
    offset += header.length;
  }
  const directory = Buffer.concat(central);
  const count = Object.keys(members).length;
  const end = Buffer.alloc(18);
  end.writeUInt16LE(count, 4);
  end.writeUInt16LE(count, 6);
  end.writeUInt32LE(directory.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...local, directory, Buffer.from("PK\x05\x06", "latin1"), end]);
}

function crc32(data: Buffer): number {
  let crc = ~0;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
