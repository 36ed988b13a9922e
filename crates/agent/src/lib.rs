//! libnthbyte: the part of nthbyte that lives inside the interpreter.
