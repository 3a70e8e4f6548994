// Icons: 24 x 24 line drawings, one path each.
const paths = {
  add: "M12 5v14M5 12h14",
  attach: "M20 11.5 12.5 19a5 5 0 0 1-7-7l8-8a3.3 3.3 0 0 1 4.7 4.7l-8 8a1.7 1.7 0 0 1-2.4-2.4l7.3-7.3",
  branch: "M7 4v16M7 9a5 5 0 0 0 5 5h5M17 11l3 3-3 3",
  chart: "M4 20V4M4 20h16M8 16l4-5 3 3 5-7",
  chat: "M5 5h14v11H10l-5 4z",
  check: "M5 12.5 10 17.5 19 7",
  close: "M6 6l12 12M18 6 6 18",
  columns: "M4 5h7v14H4zM13 5h7v14h-7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M5 19h4L19 9l-4-4L5 15z",
  file: "M6 3h8l4 4v14H6zM14 3v5h4",
  folder: "M3 6h7l2 2h9v11H3z",
  key: "M14 10a4 4 0 1 0-3.5 4L13 14v3h3v3h4v-4l-6-6",
  browser: "M4 5h16v14H4zM4 9h16M7 7h.01",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
  menu: "M4 7h16M4 12h16M4 17h16",
  model: "M12 3 4 7.5v9L12 21l8-4.5v-9zM4 7.5 12 12l8-4.5M12 12v9",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  next: "M9 5l7 7-7 7",
  play: "M8 5v14l11-7z",
  previous: "M15 5l-7 7 7 7",
  retry: "M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5",
  search: "M16 16l4 4M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14z",
  send: "M5 12h13M12 5l7 7-7 7",
  server: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4v6M9 14v6",
  stop: "M7 7h10v10H7z",
  theme: "M20 14A8 8 0 1 1 10 4a6.5 6.5 0 0 0 10 10z",
  tool: "M14 6a4 4 0 0 0-5 5l-5 5 3 3 5-5a4 4 0 0 0 5-5l-3 2-2-2z",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
