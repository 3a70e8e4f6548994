// Markdown tables of the generated documents in docs/. Columns are not padded, because padding made these documents five times
// as large, and one long cell changed every line.

/** Writes a Markdown table. A cell must be a single line; `|` in it is escaped. */
export function markdownTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const rule = `|${"---|".repeat(header.length)}`;
  return [line(header), rule, ...rows.map(line)].join("\n");
}

export function code(text: string): string {
  return `\`${text}\``;
}

function line(row: readonly string[]): string {
  return `|${row.map((cell) => (cell === "" ? " |" : ` ${cell.replaceAll("|", "\\|")} |`)).join("")}`;
}
