// Tensors of ONNX sessions: converts floats and integers to the type of an input, and an output to floats.
import { ServerError } from "../../runtime/errors.ts";
import type { Onnx, OnnxSession, OnnxTensor } from "./onnx.ts";

/** An input or output of a session. */
export interface OnnxPort {
  readonly name: string;
  readonly type: string;
  /** Dimensions. A string is the name of a dimension of any size. */
  readonly shape: readonly (number | string)[];
}

export function inputsOf(session: OnnxSession): readonly OnnxPort[] {
  return session.inputMetadata.flatMap((port) => (port.isTensor ? [port] : []));
}

type Numbers = ArrayLike<number> & Iterable<number>;

/** Returns a tensor of the port's type. Throws model_file_invalid if that type is not numeric. */
export function tensorFor(onnx: Onnx, { name, type }: OnnxPort, values: Numbers, shape: readonly number[]): OnnxTensor {
  const dims = [...shape];
  switch (type) {
    case "float32":
      return new onnx.Tensor(type, Float32Array.from(values), dims);
    case "float64":
      return new onnx.Tensor(type, Float64Array.from(values), dims);
    case "float16":
      // The tensor is created as uint16, and its type is set afterwards. For "float16", the library would convert the bits to a
      // Float16Array if the system has this class; its native part cannot read such an array (version 1.30.0).
      return Object.assign(new onnx.Tensor("uint16", toHalf(values), dims), { type });
    case "int32":
      return new onnx.Tensor(type, Int32Array.from(values, Math.trunc), dims);
    case "int64":
      return new onnx.Tensor(
        type,
        BigInt64Array.from(values as Iterable<number>, (value) => BigInt(Math.trunc(value))),
        dims,
      );
    default:
      throw new ServerError("model_file_invalid", `input "${name}" has the type ${type}; expected a type of numbers`);
  }
}

/** Returns an output as floats. Throws model_failed if there is no such output. */
export function floatsOf(outputs: Readonly<Record<string, unknown>>, name: string): Float32Array {
  const tensor = outputs[name] as OnnxTensor | undefined;
  const data = tensor?.data;
  if (data instanceof Float32Array) return data;
  if (tensor?.type === "float64") return Float32Array.from(data as Float64Array);
  if (tensor?.type === "float16") return fromHalf(data as ArrayLike<number> & { readonly buffer: ArrayBufferLike });
  throw new ServerError("model_failed", `the model returned no floats as "${name}"`);
}

const floatView = new Float32Array(1);
const bitView = new Int32Array(floatView.buffer);

/** Returns 16-bit floats as their bits. A number beyond their range becomes infinite. */
export function toHalf(values: Numbers): Uint16Array {
  const halves = new Uint16Array(values.length);
  for (let i = 0; i < halves.length; i++) halves[i] = halfBits(values[i] as number);
  return halves;
}

function halfBits(value: number): number {
  floatView[0] = value;
  const bits = bitView[0] as number;
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const fraction = bits & 0x7fffff;
  if (exponent >= 31) return sign | (exponent === 143 && fraction !== 0 ? 0x7e00 : 0x7c00);
  if (exponent < -10) return sign;
  // A subnormal result has no implicit leading one, so the one is written explicitly.
  const shift = exponent <= 0 ? 14 - exponent : 13;
  const whole = exponent <= 0 ? fraction | 0x800000 : (exponent << 23) | fraction;
  const rest = whole & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  const rounded = whole >>> shift;
  return sign | (rest > half || (rest === half && (rounded & 1) === 1) ? rounded + 1 : rounded);
}

/** Converts 16-bit floats to 32-bit floats. The library returns bits in Node 20 and numbers in later versions. */
function fromHalf(data: ArrayLike<number> & { readonly buffer: ArrayBufferLike }): Float32Array {
  if (!(data instanceof Uint16Array)) return Float32Array.from(data);
  return Float32Array.from(data, (bits) => {
    const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 0x1f, bits & 0x3ff];
    if (exponent === 0) return sign * fraction * 2 ** -24;
    if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}
