// Tensors of a pass in llama.cpp's memory: the layout of ggml_tensor for release v0.5.0, which test/parity/llama/abi.test.ts compares
// with the header, and the numbers of operations, which the library itself names.
import koffi, { type LibraryHandle, type TypeObject } from "koffi";
import type { Pointer } from "../native/pointer.ts";

export interface NativeTensor {
  /** GGUF type number. */
  readonly type: number;
  /** Lengths of the dimensions, columns first. */
  readonly ne: readonly number[];
  /** Strides in bytes. */
  readonly nb: readonly number[];
  readonly src: readonly Pointer[];
  readonly data: Pointer;
  readonly name: string;
}

interface StoredTensor extends Omit<NativeTensor, "ne" | "nb"> {
  readonly ne: Iterable<bigint | number>;
  readonly nb: Iterable<bigint | number>;
}

/** Returns the struct type of release v0.5.0. Exported for the layout test. */
export function tensorV050(): TypeObject {
  return koffi.struct({
    type: "int32",
    buffer: "void*",
    ne: koffi.array("int64", 4),
    nb: koffi.array("size_t", 4),
    op: "int32",
    op_params: koffi.array("int32", 16),
    flags: "int32",
    src: koffi.array("void*", 10),
    view_src: "void*",
    view_offs: "size_t",
    data: "void*",
    name: koffi.array("char", 64),
    extra: "void*",
    padding: koffi.array("char", 8),
  });
}

/** Number of operations whose names are asked for. The release has more, and the library does not check the number. */
const askedOperations = 64;

export interface TensorReader {
  /** Number of the operation that computes a tensor. */
  operationOf(tensor: Pointer): number;
  read(tensor: Pointer): NativeTensor;
  /** Numbers of the products of a matrix, and of a stack of matrices by indices (experts). */
  readonly product: number;
  readonly expertProduct: number;
}

/** `ggmlBase`: the library that defines tensors. */
export function createTensorReader(ggmlBase: LibraryHandle): TensorReader {
  const type = tensorV050();
  const offset = type.members?.op?.offset ?? 0;
  const nameOf = ggmlBase.func("ggml_op_name", "str", ["int32"]);
  const operations = Array.from({ length: askedOperations }, (_, i) => String(nameOf(i)));
  return {
    operationOf: (tensor) => koffi.decode(tensor, offset, "int32"),
    read: (tensor) => {
      const { ne, nb, ...others } = koffi.decode(tensor, type) as StoredTensor;
      return { ...others, ne: Array.from(ne, Number), nb: Array.from(nb, Number) };
    },
    product: operations.indexOf("MUL_MAT"),
    expertProduct: operations.indexOf("MUL_MAT_ID"),
  };
}
