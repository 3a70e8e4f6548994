// Logger interface: the part that http/ uses; the composition root passes one in.

export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
