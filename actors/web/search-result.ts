// Search result: one result of a search provider.

export interface SearchResult {
  readonly title: string;
  readonly url: string;
  readonly description: string;
}
