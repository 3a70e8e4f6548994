// Skill archive: reads the entries of an uploaded zip archive. Rejects archives that different programs could read in different
// ways. Nothing is written before all entries are checked. Contents are read as streams.
import { type Readable, Transform } from "node:stream";
import { type Entry, openPromise, type ZipFile } from "yauzl";
import { ServerError } from "../../../runtime/errors.ts";
import { skillLimits } from "../../api/agent/skills.ts";
import { crc32 } from "./crc32.ts";
import { checkedPath, invalidSkill, type SkillEntry, shown } from "./skill-entries.ts";

/** Maximum number of entries, including those of folders. */
const MAX_ENTRIES = 4 * skillLimits.maxFiles;
/** Maximum ratio of the files' size to their compressed size. Applies only to files larger than LEAST_BYTES in total. */
const MAX_RATIO = 200;
const LEAST_BYTES = 4 * 2 ** 20;
const END_RECORD_BYTES = 22;
/** Maximum size in bytes of the central directory, which is kept in memory. */
const MAX_DIRECTORY_BYTES = 2 ** 20;
/** Bit masks for the general purpose flags of a zip entry. */
const ENCRYPTED = 0x2041;
const SIZES_FOLLOW = 0x8;
const STORED = 0;
const DEFLATED = 8;
/** Value of a size field whose real size is in an extra field (zip64). */
const ELSEWHERE = 0xffffffff;
/** Bit mask and values of the file type in a Unix mode. */
const KIND = 0o170000;
const REGULAR = 0o100000;
const FOLDER = 0o040000;

/** Byte range of an entry in the archive: from its local header to the end of its data. */
interface Range {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

export interface SkillArchive {
  readonly entries: readonly SkillEntry[];
  close(): void;
}

/** Opens an archive and checks its entries. Throws invalid_value with the reason. */
export async function openArchive(path: string): Promise<SkillArchive> {
  const zip = await openPromise(path, { autoClose: false, strictFileNames: true }).catch(unreadable);
  try {
    const entries = await checkedEntries(zip).catch(unreadable);
    return { entries: entries.map((entry) => skillEntry(zip, entry)), close: () => zip.close() };
  } catch (error) {
    zip.close();
    throw error;
  }
}

async function checkedEntries(zip: ZipFile): Promise<readonly Entry[]> {
  if (zip.entryCount > MAX_ENTRIES) {
    throw invalidSkill(`expected an archive of at most ${MAX_ENTRIES} entries, got ${zip.entryCount}`);
  }
  const directoryStart = cursorOf(zip);
  if (endRecordOf(zip) - directoryStart > MAX_DIRECTORY_BYTES) {
    throw invalidSkill(`expected a list of entries of at most ${MAX_DIRECTORY_BYTES} bytes in the archive, got more`);
  }
  const entries: Entry[] = [];
  for await (const entry of zip.eachEntry()) {
    checkEntry(entry);
    entries.push(entry);
  }
  checkDirectoryEnd(zip);
  checkRatio(entries);
  const ranges: Range[] = [];
  for (const entry of entries) ranges.push(await localRange(zip, entry));
  checkOverlaps(ranges, directoryStart);
  return entries;
}

/** Returns the position of the next entry in the central directory. The cast is needed because the library declares a wrong type. */
function cursorOf(zip: ZipFile): number {
  return zip.readEntryCursor as unknown as number;
}

function endRecordOf(zip: ZipFile): number {
  return zip.fileSize - END_RECORD_BYTES - zip.comment.length;
}

/** Checks that the end record directly follows the last entry of the central directory. This also rejects zip64 archives. */
function checkDirectoryEnd(zip: ZipFile): void {
  if (cursorOf(zip) === endRecordOf(zip)) return;
  throw invalidSkill(
    "expected a zip archive whose list of entries ends at its end record; zip64 archives are not read",
  );
}

function checkEntry(entry: Entry): void {
  const { fileName, generalPurposeBitFlag: flags, compressionMethod: method, uncompressedSize: bytes } = entry;
  const isFolder = fileName.endsWith("/");
  const refuse = (problem: string): never => {
    throw invalidSkill(`expected an archive of files and folders; ${shown(fileName)} ${problem}`);
  };
  if ((flags & ENCRYPTED) !== 0) refuse("is encrypted");
  if (method !== STORED && method !== DEFLATED) refuse(`has the compression method ${method}; use store or deflate`);
  if (bytes > skillLimits.maxBytes) refuse(`has ${bytes} bytes; at most ${skillLimits.maxBytes} are stored`);
  if (isFolder && bytes > 0) refuse("is a folder with content");
  const kind = modeOf(entry) & KIND;
  if (kind !== 0 && kind !== (isFolder ? FOLDER : REGULAR)) refuse("is a link, a device or another special file");
}

/** Returns the Unix mode of an entry; 0 if the archive was not created on Unix. */
function modeOf({ externalFileAttributes }: Entry): number {
  return externalFileAttributes >>> 16;
}

function checkRatio(entries: readonly Entry[]): void {
  const total = (size: (entry: Entry) => number): number => entries.reduce((sum, entry) => sum + size(entry), 0);
  const bytes = total(({ uncompressedSize }) => uncompressedSize);
  const packed = total(({ compressedSize }) => compressedSize);
  if (bytes > skillLimits.maxBytes) {
    throw invalidSkill(`expected files of at most ${skillLimits.maxBytes} bytes together, got ${bytes}`);
  }
  if (bytes > LEAST_BYTES && bytes > MAX_RATIO * packed) {
    throw invalidSkill(`expected files of at most ${MAX_RATIO} times their compressed size, got ${bytes} of ${packed}`);
  }
}

/** Checks that the local header of an entry matches the central directory. Returns the byte range of the entry. */
async function localRange(zip: ZipFile, entry: Entry): Promise<Range> {
  const local = await zip.readLocalFileHeaderPromise(entry, {});
  const { fileName: name, compressedSize, uncompressedSize, crc32: sum, generalPurposeBitFlag: flags } = entry;
  const hasSizes = (local.generalPurposeBitFlag & SIZES_FOLLOW) === 0;
  const agrees = (one: number, other: number): boolean =>
    one === other || one === ELSEWHERE || (!hasSizes && one === 0);
  if (
    !local.fileName.equals(entry.fileNameRaw) ||
    local.compressionMethod !== entry.compressionMethod ||
    local.generalPurposeBitFlag !== flags ||
    !agrees(local.compressedSize, compressedSize) ||
    !agrees(local.uncompressedSize, uncompressedSize) ||
    !(local.crc32 === sum || (!hasSizes && local.crc32 === 0))
  ) {
    throw invalidSkill(`${shown(name)} differs between its own header and the archive's list of entries`);
  }
  return { name, from: entry.relativeOffsetOfLocalHeader, to: local.fileDataStart + compressedSize };
}

function checkOverlaps(ranges: readonly Range[], end: number): void {
  const sorted = [...ranges].sort((one, other) => one.from - other.from);
  for (const [i, { name, to }] of sorted.entries()) {
    if (to > (sorted[i + 1]?.from ?? end)) throw invalidSkill(`the data of ${shown(name)} overlaps other entries`);
  }
}

function skillEntry(zip: ZipFile, entry: Entry): SkillEntry {
  const { fileName, uncompressedSize: bytes } = entry;
  const isFolder = fileName.endsWith("/");
  return {
    path: checkedPath(isFolder ? fileName.slice(0, -1) : fileName),
    isFolder,
    bytes,
    isExecutable: (modeOf(entry) & 0o111) !== 0,
    read: async () => checkedStream(await zip.openReadStreamPromise(entry).catch(unreadable), entry),
  };
}

/** Returns the content stream of an entry. It fails if the size or the checksum differs from the entry's. */
function checkedStream(source: Readable, { fileName, crc32: expected }: Entry): Readable {
  let sum = 0;
  const check = new Transform({
    transform(piece: Buffer, _, done) {
      sum = crc32(piece, sum);
      done(null, piece);
    },
    flush(done) {
      done(sum === expected ? null : invalidSkill(`the content of ${shown(fileName)} does not match its checksum`));
    },
  });
  source.on("error", (error) => check.destroy(damaged(error)));
  check.on("close", () => source.destroy());
  return source.pipe(check);
}

function unreadable(error: unknown): never {
  throw damaged(error);
}

function damaged(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  return invalidSkill(`expected a zip archive that is not damaged: ${error instanceof Error ? error.message : error}`);
}
