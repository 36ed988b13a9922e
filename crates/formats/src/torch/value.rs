//! A snapshot as it is in its file, JSON or a pickle, without a meaning yet.
//!
//! A pickle is a program, which Python runs. Here only its operations are known that make numbers, texts, lists and
//! dictionaries: nothing is looked up or called. What it says twice by reference is there once, so that a small file makes
//! no large value.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// None, a float, bytes: nothing that is asked for.
    Other,
    Int(i64),
    Text(Rc<str>),
    List(Rc<Shared<Value>>),
    Map(Rc<Shared<(Value, Value)>>),
}

/// The items of a list or a dictionary, which may lie in several others.
#[derive(Debug)]
pub(super) struct Shared<T> {
    items: RefCell<Vec<T>>,
    /// How deep it is.
    depth: Cell<u32>,
    /// It lies in another one, so its depth does not change any more. No value lies in itself.
    is_closed: Cell<bool>,
}

impl<T> Shared<T> {
    fn new(items: Vec<T>, depth: u32) -> Rc<Self> {
        Rc::new(Self {
            items: RefCell::new(items),
            depth: Cell::new(depth),
            is_closed: Cell::new(false),
        })
    }

    fn extend(&self, items: Vec<T>, depth: u32) -> Result<(), String> {
        if self.is_closed.get() {
            return Err("it changes what lies in something else".to_owned());
        }
        self.depth.set(self.depth.get().max(depth));
        self.items.borrow_mut().extend(items);
        Ok(())
    }
}

/// A deeper value than this is none of PyTorch's.
const DEEPEST: u32 = 64;

impl Value {
    fn list(items: Vec<Self>) -> Self {
        Self::List(Shared::new(items, 0))
    }

    fn map(items: Vec<(Self, Self)>) -> Self {
        Self::Map(Shared::new(items, 0))
    }

    /// Notes that these lie in another value, and returns the depth of that.
    fn close(items: &[Self]) -> Result<u32, String> {
        let mut depth = 0;
        for item in items {
            let (of, is_closed) = match item {
                Self::List(list) => (&list.depth, &list.is_closed),
                Self::Map(map) => (&map.depth, &map.is_closed),
                _ => continue,
            };
            is_closed.set(true);
            depth = depth.max(of.get() + 1);
        }
        if depth > DEEPEST {
            return Err("it is too deep".to_owned());
        }
        Ok(depth)
    }

    /// The value under a key of a dictionary.
    pub(super) fn get(&self, key: &str) -> Self {
        let Self::Map(items) = self else {
            return Self::Other;
        };
        let items = items.items.borrow();
        let found = items
            .iter()
            .rfind(|(of, _)| matches!(of, Self::Text(text) if **text == *key));
        found.map_or(Self::Other, |(_, value)| value.clone())
    }

    /// What a list has; nothing, if it is none.
    pub(super) fn items(&self) -> Vec<Self> {
        match self {
            Self::List(items) => items.items.borrow().clone(),
            _ => Vec::new(),
        }
    }

    /// A number that is not negative.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<Rc<str>> {
        match self {
            Self::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(Value::Int(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Int(number.cast_signed()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Text(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut of: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = of.next_element()? {
                    items.push(item);
                }
                Ok(Value::list(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut of: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = of.next_entry()? {
                    items.push(item);
                }
                Ok(Value::map(items))
            }
        }
        from.deserialize_any(Any)
    }
}

/// Reads a pickle of protocol 2 to 5.
pub(super) fn unpickle(bytes: &[u8]) -> Result<Value, String> {
    let mut machine = Machine {
        rest: bytes,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    machine.run().map_err(|why| {
        let at = bytes.len() - machine.rest.len();
        format!("at byte {at}: {why}")
    })
}

const CUT: &str = "it breaks off";
const EMPTY: &str = "its stack is empty";

struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Value, String> {
        loop {
            let [operation] = self.array()?;
            match operation {
                b'.' => return self.pop(),
                // PROTO, FRAME
                0x80 => drop(self.array::<1>()?),
                0x95 => drop(self.array::<8>()?),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => drop(self.pop()?),
                b'1' => drop(self.marked()?),
                // None, booleans, floats
                b'N' | 0x88 | 0x89 => self.stack.push(Value::Other),
                b'G' => {
                    self.array::<8>()?;
                    self.stack.push(Value::Other);
                }
                // Integers
                b'K' => self.int::<1>()?,
                b'M' => self.int::<2>()?,
                b'J' => {
                    let number = i32::from_le_bytes(self.array()?);
                    self.stack.push(Value::Int(number.into()));
                }
                0x8a => {
                    let [length] = self.array()?;
                    let bytes = self.bytes(length.into())?;
                    let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) {
                        0xff
                    } else {
                        0
                    };
                    let mut whole = [sign; 8];
                    // An address may need a ninth byte, for its sign.
                    let used = bytes.len().min(8);
                    whole[..used].copy_from_slice(&bytes[..used]);
                    self.stack.push(Value::Int(i64::from_le_bytes(whole)));
                }
                // Texts
                b'X' => self.text::<4>()?,
                0x8c => self.text::<1>()?,
                0x8d => self.text::<8>()?,
                // Bytes
                b'B' => self.no_text::<4>()?,
                b'C' => self.no_text::<1>()?,
                0x8e | 0x96 => self.no_text::<8>()?,
                // Lists and tuples
                b']' | b')' => self.stack.push(Value::list(Vec::new())),
                0x85..=0x87 => {
                    let first = self.stack.len().checked_sub(usize::from(operation - 0x84));
                    let items = self.stack.split_off(first.ok_or(EMPTY)?);
                    self.push_list(items)?;
                }
                b't' | b'l' => {
                    let items = self.marked()?;
                    self.push_list(items)?;
                }
                b'a' => {
                    let item = self.pop()?;
                    self.extend(vec![item])?;
                }
                b'e' => {
                    let items = self.marked()?;
                    self.extend(items)?;
                }
                // Dictionaries
                b'}' => self.stack.push(Value::map(Vec::new())),
                b's' => {
                    let value = self.pop()?;
                    let key = self.pop()?;
                    self.set(vec![key, value])?;
                }
                b'u' => {
                    let items = self.marked()?;
                    self.set(items)?;
                }
                // The memo
                b'q' => self.keep::<1>()?,
                b'r' => self.keep::<4>()?,
                0x94 => {
                    let number = self.memo.len() as u32;
                    let top = self.stack.last().ok_or(EMPTY)?.clone();
                    self.memo.insert(number, top);
                }
                b'h' => self.recall::<1>()?,
                b'j' => self.recall::<4>()?,
                other => {
                    return Err(format!(
                        "it has more than numbers, texts, lists and dictionaries (operation {other:#04x})"
                    ));
                }
            }
        }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(CUT)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CUT)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A number without a sign, of so many bytes.
    fn unsigned<const N: usize>(&mut self) -> Result<u64, String> {
        let mut whole = [0; 8];
        whole[..N].copy_from_slice(&self.array::<N>()?);
        Ok(u64::from_le_bytes(whole))
    }

    fn int<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.unsigned::<N>()?;
        self.stack.push(Value::Int(number.cast_signed()));
        Ok(())
    }

    fn sized<const N: usize>(&mut self) -> Result<&'a [u8], String> {
        let length = self.unsigned::<N>()?;
        self.bytes(usize::try_from(length).map_err(|_| CUT)?)
    }

    fn text<const N: usize>(&mut self) -> Result<(), String> {
        let text = String::from_utf8_lossy(self.sized::<N>()?).into();
        self.stack.push(Value::Text(text));
        Ok(())
    }

    fn no_text<const N: usize>(&mut self) -> Result<(), String> {
        self.sized::<N>()?;
        self.stack.push(Value::Other);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, String> {
        Ok(self.stack.pop().ok_or(EMPTY)?)
    }

    /// What lies above the last mark, which is removed.
    fn marked(&mut self) -> Result<Vec<Value>, String> {
        let mark = self.marks.pop().ok_or("it has no mark")?;
        if mark > self.stack.len() {
            return Err(EMPTY.to_owned());
        }
        Ok(self.stack.split_off(mark))
    }

    fn push_list(&mut self, items: Vec<Value>) -> Result<(), String> {
        let depth = Value::close(&items)?;
        self.stack.push(Value::List(Shared::new(items, depth)));
        Ok(())
    }

    fn extend(&mut self, items: Vec<Value>) -> Result<(), String> {
        let depth = Value::close(&items)?;
        match self.stack.last() {
            Some(Value::List(list)) => list.extend(items, depth),
            _ => Err("it adds to what is no list".to_owned()),
        }
    }

    fn set(&mut self, items: Vec<Value>) -> Result<(), String> {
        let Some(Value::Map(map)) = self.stack.last() else {
            return Err("it sets in what is no dictionary".to_owned());
        };
        let depth = Value::close(&items)?;
        let mut items = items.into_iter();
        let mut pairs = Vec::with_capacity(items.len() / 2);
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key, value));
        }
        map.extend(pairs, depth)
    }

    fn keep<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.unsigned::<N>()? as u32;
        let top = self.stack.last().ok_or(EMPTY)?.clone();
        self.memo.insert(number, top);
        Ok(())
    }

    fn recall<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.unsigned::<N>()? as u32;
        let value = self.memo.get(&number).ok_or("it recalls nothing")?;
        self.stack.push(value.clone());
        Ok(())
    }
}
