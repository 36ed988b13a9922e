//! The protection of the pages of this process, from `/proc/self/maps`.

use std::ffi::c_int;
use std::ops::Range;

use nthbyte_host::process::MapsLine;

/// The process's mappings at the moment of reading.
#[derive(Debug)]
pub struct MemoryMap(Vec<(Range<usize>, c_int)>);

impl MemoryMap {
    /// Reads `/proc/self/maps`. Cost: about 10 µs, and 0.3 µs for each mapping.
    ///
    /// # Errors
    /// One clause, if there is no `/proc`.
    pub fn read() -> Result<Self, String> {
        let text = std::fs::read("/proc/self/maps")
            .map_err(|error| format!("/proc/self/maps cannot be read ({error})"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Self {
        let lines = text.split(|&byte| byte == b'\n');
        Self(lines.filter_map(mapping).collect())
    }

    /// The protection (`PROT_*`) of the pages that these bytes lie in.
    ///
    /// # Errors
    /// One clause, if the pages have different protections, or nothing is mapped there.
    pub fn protection(&self, bytes: Range<usize>) -> Result<c_int, String> {
        let of = |address: usize| {
            let after = self.0.partition_point(|(range, _)| range.end <= address);
            let found = self
                .0
                .get(after)
                .filter(|(range, _)| range.contains(&address));
            found
                .map(|&(_, protection)| protection)
                .ok_or_else(|| format!("nothing is mapped at {address:#x}"))
        };
        let first = of(bytes.start)?;
        if of(bytes.end - 1)? != first {
            return Err(format!(
                "the pages at {:#x} differ in protection",
                bytes.start
            ));
        }
        Ok(first)
    }
}

/// The addresses of a line, and their protection.
fn mapping(line: &[u8]) -> Option<(Range<usize>, c_int)> {
    let MapsLine { range, rights, .. } = MapsLine::parse(line)?;
    let named = [
        (b'r', libc::PROT_READ),
        (b'w', libc::PROT_WRITE),
        (b'x', libc::PROT_EXEC),
    ];
    let protection = named
        .iter()
        .zip(rights)
        .filter(|((letter, _), right)| letter == right);
    Some((range, protection.fold(0, |all, ((_, one), _)| all | one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_protection_of_its_line() {
        let map = MemoryMap::parse(
            b"1000-3000 r--p 00000000 08:01 5 /lib/a b\xff\n\
              3000-4000 r-xp 00002000 08:01 5 /lib/a b\xff\n\
              8000-9000 rw-p 00000000 00:00 0\n",
        );
        let at = |address| map.protection(address..address + 8).ok();
        let (r, w, x) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
        assert_eq!(
            [at(0x1000), at(0x2ff8), at(0x3000)],
            [Some(r), Some(r), Some(r | x)]
        );
        assert_eq!(
            [at(0xfff), at(0x4000), at(0x8008), at(0x9000)],
            [None, None, Some(r | w), None]
        );
        assert_eq!(
            map.protection(0x2ffc..0x3004),
            Err("the pages at 0x2ffc differ in protection".to_owned())
        );
    }

    #[test]
    fn this_process_is_read() {
        let map = MemoryMap::read().unwrap();
        let code = this_process_is_read as *const () as usize;
        assert_eq!(
            map.protection(code..code + 1).unwrap(),
            libc::PROT_READ | libc::PROT_EXEC
        );
        let local = 0u8;
        let stack = (&raw const local) as usize;
        assert_eq!(
            map.protection(stack..stack + 1).unwrap(),
            libc::PROT_READ | libc::PROT_WRITE
        );
    }
}
