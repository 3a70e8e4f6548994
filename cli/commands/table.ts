// Text tables and readable sizes, for commands that list models.

/** Formats rows as columns. The last column is not padded. */
export function textTable(rows: readonly (readonly string[])[]): string {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, at) => Math.max(...rows.map((row) => (row[at] ?? "").length)));
  return rows
    .map((row) =>
      row
        .map((cell, at) => cell.padEnd(at === row.length - 1 ? 0 : (widths[at] ?? 0)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Formats a number of bytes with a unit: `98.1 MB`. */
export function sizeText(bytes: number): string {
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} kB`;
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}
