/** Opaque native pointer; the value null is the C NULL pointer. */
export type Pointer = unknown;
