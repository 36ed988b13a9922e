// Whose code a source file is, derived from its path.

import type { Data } from "./data.ts";
import { Kind } from "./data.ts";

/** Names for code of no package. Packages have the names of their distributions, or of their folders in site-packages. */
export const OWN = "your code";
export const STANDARD = "standard library";
export const NATIVE = "native code";

export interface Owners {
  names: string[];
  /** Index into `names`, by function. */
  ofFunction: Uint32Array;
}

const LIBRARY = /[\\/](?:site-packages|dist-packages|lib-python[\\/]\d+(?:\.\d+)?|lib_pypy|lib[\\/](?:python|pypy)\d[\w.]*)[\\/](?!site-packages|dist-packages)([^\\/]+)/g;

const PACKAGES = /[\\/](?:site-packages|dist-packages)[\\/]([^\\/]+)/g;

const COMMAND = /[\\/]bin[\\/](?!python|pypy)([^\\/.]+)$/;

/** Whose code a file is: the reader's own, the standard library's, a package's, or native. */
export function ownerOf(file: string, distributions: Record<string, string> = {}): string {
  const inside = [...file.matchAll(PACKAGES)].at(-1);
  if (inside) {
    const folder = inside[1]!.replace(/\.(cpython|pypy|abi3).*$/, "").replace(/\.(py|pyc|so|pyd)$/, "");
    const name = folder.replace(/\.(libs|egg)$/, "");
    return Object.hasOwn(distributions, folder) ? distributions[folder]! : Object.hasOwn(distributions, name) ? distributions[name]! : name;
  }
  // Built-in functions and frozen modules are parts of the interpreter; and, on PyPy, built-in modules in Python.
  if (file === "" || file.startsWith("<frozen ") || file.startsWith("<builtin>/")) return STANDARD;
  if (file.match(LIBRARY)) return STANDARD;
  // The script of a command, which pip writes: it calls the main function of the command's package.
  const command = COMMAND.exec(file)?.[1];
  if (command !== undefined) return command;
  return /\.so(?:\.[\d.]+)?$/.test(file) ? NATIVE : OWN;
}

/** A file's path, without the folders that contain its library. */
export function shortPath(file: string): string {
  const inside = [...file.matchAll(LIBRARY)].at(-1);
  return inside ? file.slice(inside.index + inside[0].length - inside[1]!.length) : file;
}

/** A file that the package attrs makes up for the methods of a class: it names the class's module. */
const GENERATED = /^<attrs generated [^>]*?\b([A-Za-z_]\w*)\./;

/** The owner of each file. Methods that attrs generates belong to the package of their class. */
function ownersOf(files: string[], distributions: Record<string, string> = {}): string[] {
  const owners = files.map((file) => ownerOf(file, distributions));
  const known = new Set(owners);
  return owners.map((owner, at) => {
    const folder = GENERATED.exec(files[at]!)?.[1];
    if (folder === undefined) return owner;
    const name = Object.hasOwn(distributions, folder) ? distributions[folder]! : folder;
    return known.has(name) ? name : owner;
  });
}

/** The owner of each function. A function that runs as native code in no package is native: an executable too. */
export function owners(data: Data): Owners {
  const { header } = data;
  const { files, functions } = header;
  const names: string[] = [];
  const numbers = new Map<string, number>();
  const number = (name: string): number => {
    let at = numbers.get(name);
    if (at === undefined) {
      at = names.push(name) - 1;
      numbers.set(name, at);
    }
    return at;
  };
  const ofFile = ownersOf(files, header.distributions).map(number);
  const ofFunction = Uint32Array.from(functions.file, (file) => ofFile[file]!);
  for (let frame = 0; frame < data.frameKind.length; frame++) {
    const at = data.frameFunction[frame]!;
    if (data.frameKind[frame] !== Kind.Native) continue;
    if (files[functions.file[at]!] === "" || names[ofFunction[at]!] === OWN) ofFunction[at] = number(NATIVE);
  }
  return { names, ofFunction };
}
