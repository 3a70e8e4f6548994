/** An opaque native pointer; null is NULL. */
export type Pointer = unknown;
