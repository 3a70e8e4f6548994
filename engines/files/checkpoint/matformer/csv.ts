// CSV reader (RFC 4180): fields that contain commas or line breaks are in quotes. Empty lines are skipped.

/** Returns the fields of each row. Throws `problem(line, what)` for quotes that do not enclose a whole field. */
export function csvRows(text: string, problem: (line: number, what: string) => Error): string[][] {
  const rows: string[][] = [];
  const field = /"([^"]*(?:""[^"]*)*)"|([^",\r\n]*)/y;
  const end = /,|\r?\n|$/y;
  let row: string[] = [];
  let at = 0;
  const lineAt = (offset: number) => text.slice(0, offset).split("\n").length;
  while (at < text.length || row.length > 0) {
    field.lastIndex = at;
    const found = field.exec(text);
    end.lastIndex = field.lastIndex;
    const closed = found && end.exec(text);
    if (!found || !closed) throw problem(lineAt(at), "has quotes that do not enclose a field");
    row.push((found[1]?.replaceAll('""', '"') ?? found[2] ?? "").trim());
    at = end.lastIndex;
    if (closed[0] === ",") continue;
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  }
  return rows;
}
