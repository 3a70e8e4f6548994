// Formats of numbers, sizes and times in the language of the user.
import { language } from "./language.ts";

/** Formats a duration in milliseconds: `0.4 s`, `12 s`, `3 min`. */
export function duration(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 10) return `${number(seconds, 1)} s`;
  if (seconds < 120) return `${number(seconds)} s`;
  return seconds < 7200 ? `${number(seconds / 60)} min` : `${number(seconds / 3600)} h`;
}

export function number(value: number, digits = 0): string {
  return new Intl.NumberFormat(language.value, { maximumFractionDigits: digits }).format(value);
}

/** Formats a number of bytes in decimal units: `4.2 MB`. */
export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [value, unit] = [count, 0];
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${number(value, value < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

/** Formats a time in milliseconds since 1970: the time of day if it is today, otherwise the date. */
export function moment(ms: number): string {
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date().toDateString();
  const form: Intl.DateTimeFormatOptions = isToday
    ? { hour: "2-digit", minute: "2-digit" }
    : { day: "numeric", month: "short", year: "numeric" };
  return new Intl.DateTimeFormat(language.value, form).format(date);
}
