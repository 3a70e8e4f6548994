// The numbers by which the host names number types: those of the GGUF format.
export const F32: i32 = 0;
export const F16: i32 = 1;
export const Q4_0: i32 = 2;
export const Q4_1: i32 = 3;
export const Q8_0: i32 = 8;
export const BF16: i32 = 30;
