// Route: the page that is shown, encoded in the URL fragment (`#/chat/ID`), so that the URL path stays the same.
import { signal } from "@preact/signals";

export interface Route {
  readonly page: string;
  /** Id of the object that the page shows, such as a conversation; "" if it shows none. */
  readonly id: string;
}

export const route = signal<Route>(parsed(location.hash));

addEventListener("hashchange", () => {
  route.value = parsed(location.hash);
});

/** Returns the link to a page, for the attribute href. */
export function hrefOf(page: string, id = ""): string {
  return id === "" ? `#/${page}` : `#/${page}/${encodeURIComponent(id)}`;
}

/** Shows a page. `replace`: replaces the current entry in the browser's history. */
export function show(page: string, id = "", replace = false): void {
  const href = hrefOf(page, id);
  if (location.hash === href) return;
  if (!replace) location.hash = href;
  else {
    history.replaceState(null, "", href);
    route.value = parsed(href);
  }
}

function parsed(hash: string): Route {
  const [page = "", id = ""] = hash.replace(/^#\/?/, "").split("/");
  return { page: page === "" ? "chat" : page, id: decoded(id) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
