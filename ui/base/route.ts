// Route: the page that is shown, in the fragment of the address (`#/chat/ID`). The path of the address stays that of the server.
import { signal } from "@preact/signals";

export interface Route {
  readonly page: string;
  /** Object that the page shows, such as a conversation; "": none. */
  readonly id: string;
}

export const route = signal<Route>(parsed(location.hash));

addEventListener("hashchange", () => {
  route.value = parsed(location.hash);
});

/** Address of a page for the attribute href. */
export function hrefOf(page: string, id = ""): string {
  return id === "" ? `#/${page}` : `#/${page}/${encodeURIComponent(id)}`;
}

/** Shows a page. `replace`: the page before it leaves the history of the browser. */
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
