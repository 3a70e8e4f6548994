// Protocol buffer reader: walks through the fields of one message. Every length is checked against the end of the message.
import { ServerError } from "../../../../../runtime/errors.ts";

/** Wire types: how the value of a field is encoded. */
const wire = { integer: 0, eightBytes: 1, bytes: 2, fourBytes: 5 };
const maxIntegerBytes = 10;

export class ProtobufReader {
  /** Number of the current field. */
  field = 0;
  #wireType = 0;
  /** Bounds of the value of the current field. */
  #start = 0;
  #end = 0;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  /** Names of the file and the message, for errors. */
  readonly #file: string;
  readonly #message: string;

  constructor(bytes: Uint8Array, file: string, message = "") {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#file = file;
    this.#message = message;
  }

  /** Moves to the next field; false at the end of the message. */
  next(): boolean {
    if (this.#end === this.#bytes.length) return false;
    const [tag, start] = this.#varint(this.#end);
    this.field = Number(tag >> 3n);
    this.#wireType = Number(tag & 7n);
    this.#start = start;
    this.#end = this.#endOfValue(start);
    if (this.#end > this.#bytes.length) throw this.invalid("is cut off");
    return true;
  }

  get isInteger(): boolean {
    return this.#wireType === wire.integer;
  }

  /** Returns the current field as an integer. Integers are signed; the file has only small ones. */
  integer(): number {
    this.#expect(wire.integer, "a whole number");
    return Number(BigInt.asIntN(64, this.#varint(this.#start)[0]));
  }

  float(): number {
    this.#expect(wire.fourBytes, "a 32-bit number");
    const value = this.#view.getFloat32(this.#start, true);
    if (Number.isFinite(value)) return value;
    throw this.invalid(`has the number ${value}`);
  }

  bytes(): Uint8Array {
    this.#expect(wire.bytes, "bytes");
    return this.#bytes.subarray(this.#start, this.#end);
  }

  text(): string {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes());
    } catch (error) {
      if (error instanceof ServerError) throw error;
      throw this.invalid("has a text that is not UTF-8");
    }
  }

  nested(message: string): ProtobufReader {
    return new ProtobufReader(this.bytes(), this.#file, message);
  }

  invalid(problem: string): ServerError {
    const where = this.#message === "" ? "the file" : this.#message;
    return new ServerError("model_file_invalid", `${this.#file}: ${where} ${problem}; fetch the file again`);
  }

  #expect(wireType: number, expected: string): void {
    if (this.#wireType !== wireType)
      throw this.invalid(`has field ${this.field} of another type; expected ${expected}`);
  }

  /** Returns the end of a value. For bytes, it also moves the start of the value past the length. */
  #endOfValue(start: number): number {
    if (this.#wireType === wire.integer) return this.#varint(start)[1];
    if (this.#wireType === wire.eightBytes) return start + 8;
    if (this.#wireType === wire.fourBytes) return start + 4;
    if (this.#wireType !== wire.bytes) throw this.invalid(`has field ${this.field} of an unknown type`);
    const [length, from] = this.#varint(start);
    this.#start = from;
    return from + Number(length);
  }

  /** Reads an integer of variable length. Returns the integer and its end. */
  #varint(start: number): [value: bigint, end: number] {
    let value = 0n;
    for (let at = start; at < Math.min(start + maxIntegerBytes, this.#bytes.length); at++) {
      const byte = this.#bytes[at] as number;
      value |= BigInt(byte & 0x7f) << BigInt(7 * (at - start));
      if (byte < 0x80) return [value, at + 1];
    }
    throw this.invalid("is cut off");
  }
}
