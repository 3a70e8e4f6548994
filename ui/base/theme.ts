// Theme: light, dark, or the theme of the system.
import { oneOf, preference } from "./preference.ts";

export type Theme = "system" | "light" | "dark";

export const theme = preference<Theme>("theme", "system", oneOf("system", "light", "dark"));

theme.subscribe((chosen) => {
  const { dataset } = document.documentElement;
  if (chosen === "system") delete dataset.theme;
  else dataset.theme = chosen;
});

export function nextTheme(): void {
  const order: readonly Theme[] = ["system", "light", "dark"];
  theme.value = order[(order.indexOf(theme.value) + 1) % order.length] ?? "system";
}
