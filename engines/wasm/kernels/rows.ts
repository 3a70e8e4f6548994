// Moving rows of floats between what one thread computed and what all threads need.

/** target[i][c] = source[i][c] for n rows of `columns` floats. Strides in floats. */
export function copyRows(source: usize, sourceStride: i32, target: usize, targetStride: i32, n: i32, columns: i32): void {
  const bytes = <usize>columns << 2;
  for (let i = 0; i < n; i++) {
    memory.copy(target, source, bytes);
    source += <usize>sourceStride << 2;
    target += <usize>targetStride << 2;
  }
}

/** target[i][c] += source[i][c] for n rows of `columns` floats. Strides in floats. */
export function addRows(source: usize, sourceStride: i32, target: usize, targetStride: i32, n: i32, columns: i32): void {
  for (let i = 0; i < n; i++) {
    let c = 0;
    for (; c + 4 <= columns; c += 4) {
      const at = <usize>c << 2;
      v128.store(target + at, f32x4.add(v128.load(target + at), v128.load(source + at)));
    }
    for (; c < columns; c++) {
      const at = <usize>c << 2;
      store<f32>(target + at, load<f32>(target + at) + load<f32>(source + at));
    }
    source += <usize>sourceStride << 2;
    target += <usize>targetStride << 2;
  }
}
