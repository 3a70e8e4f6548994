// Markdown tables of generated documents (docs/), with padded columns as the formatter writes them.

/** A Markdown table. Cells are one line each. */
export function markdownTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [header, ...rows].map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = header.map((_, column) => Math.max(...cells.map((row) => [...(row[column] ?? "")].length)));
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, column) => pad(cell, widths[column] ?? 0)).join(" | ")} |`;
  const [first = [], ...others] = cells;
  return [line(first), line(widths.map((width) => "-".repeat(width))), ...others.map(line)].join("\n");
}

export function code(text: string): string {
  return `\`${text}\``;
}

function pad(cell: string, width: number): string {
  return cell + " ".repeat(Math.max(0, width - [...cell].length));
}
