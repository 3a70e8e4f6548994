// Table for the pages: rows of texts and controls under a heading.
import type { ComponentChildren } from "preact";

interface Props {
  readonly caption: string;
  readonly heads: readonly string[];
  readonly rows: readonly { readonly key: string; readonly cells: readonly ComponentChildren[] }[];
  /** Text shown instead of the table if there are no rows. */
  readonly none: string;
}

export function Table({ caption, heads, rows, none }: Props) {
  return (
    <section aria-label={caption}>
      <h2>{caption}</h2>
      {rows.length === 0 ? (
        <p class="quiet">{none}</p>
      ) : (
        <div class="scrolling" tabIndex={0}>
          <table class="data">
            <thead>
              <tr>
                {heads.map((head) => (
                  <th key={head} scope="col">
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ key, cells }) => (
                <tr key={key}>
                  {cells.map((cell, i) => (
                    <td key={heads[i]}>{cell}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
