// Element types of tensors, with their numbers in the GGUF format.
export const F32: i32 = 0;
export const F16: i32 = 1;
export const Q4_0: i32 = 2;
export const Q4_1: i32 = 3;
export const Q5_0: i32 = 6;
export const Q5_1: i32 = 7;
export const Q8_0: i32 = 8;
export const Q2_K: i32 = 10;
export const Q3_K: i32 = 11;
export const Q4_K: i32 = 12;
export const Q5_K: i32 = 13;
export const Q6_K: i32 = 14;
export const IQ4_NL: i32 = 20;
export const IQ4_XS: i32 = 23;
export const BF16: i32 = 30;
export const MXFP4: i32 = 39;
