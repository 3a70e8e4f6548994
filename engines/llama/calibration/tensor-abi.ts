// Tensor layout: the struct ggml_tensor of llama.cpp release v0.5.0, for reading the tensors of a pass. test/parity/llama/abi.test.ts
// compares the layout with the header. The numbers of operations are looked up by name in the library.
import koffi, { type LibraryHandle, type TypeObject } from "koffi";
import type { Pointer } from "../native/pointer.ts";

export interface NativeTensor {
  /** GGUF type number. */
  readonly type: number;
  /** Dimensions in elements, columns first. */
  readonly ne: readonly number[];
  /** Stride of each dimension in bytes. */
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

/**
 * Number of operations whose names are looked up. It must be below the release's number of operations, because the library does not check
 * the index.
 */
const askedOperations = 64;

export interface TensorReader {
  /** Returns the number of the operation that computes a tensor. */
  operationOf(tensor: Pointer): number;
  read(tensor: Pointer): NativeTensor;
  /**
   * Number of the operation that multiplies by a matrix. `expertProduct`: the operation that multiplies by matrices of a stack, selected by
   * indices (experts).
   */
  readonly product: number;
  readonly expertProduct: number;
}

/** Creates the reader. `ggmlBase`: the library that defines ggml_tensor. */
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
