// Search result: what a search provider says about a page.

export interface SearchResult {
  readonly title: string;
  readonly url: string;
  readonly description: string;
}
