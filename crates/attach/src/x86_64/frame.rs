//! The signal frame that `rt_sigreturn` restores: the kernel's own way to let a thread go on where a signal has
//! interrupted it, with all its registers, its extended state and its mask of signals.

use std::mem::offset_of;

use libc::user_regs_struct;

/// `struct rt_sigframe` without the `siginfo` at its end, which the kernel does not read.
#[repr(C)]
struct SignalFrame {
    return_address: u64,
    flags: u64,
    link: u64,
    /// A flag that no stack has: the alternate stack stays as it is.
    alternate_stack: [u64; 3],
    /// From r8 to rip, in the order of `struct sigcontext`.
    registers: [u64; 17],
    eflags: u64,
    /// cs, gs, fs and ss, of 16 bits each.
    segments: u64,
    faults: [u64; 4],
    extended_state: u64,
    reserved: [u64; 8],
    mask: u64,
}

const _: () = assert!(size_of::<SignalFrame>() == 8 + 304);

/// Where rax and rip stand in a frame.
pub const RAX: usize = offset_of!(SignalFrame, registers) + 8 * 13;
/// See [`RAX`].
pub const RIP: usize = offset_of!(SignalFrame, registers) + 8 * 16;

/// The frame has the extended state (`UC_FP_XSTATE`), and ss is valid.
const FLAGS: u64 = 7;
/// An invalid mode of an alternate stack.
const KEEP_ALTERNATE_STACK: u64 = 4;

/// Where the kernel's words about the extended state begin, and where the bits of its parts in use are.
const SOFTWARE_BYTES: usize = 464;
const IN_USE: usize = 512;
/// The smallest extended state: the legacy area and its header.
const SMALLEST: usize = 576;
const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
/// AMX: its state is 8 KiB, and the kernel gives it only to threads that have asked for it.
const AMX: u64 = 3 << 17;

/// The frame for the address `at`, with which a thread goes on with these registers, this mask and this extended state
/// (as `PTRACE_GETREGSET` gives it). `return_address` is where a `ret` to the frame leads. `None` if the thread uses AMX
/// now.
pub fn build(
    at: u64,
    return_address: u64,
    registers: &user_regs_struct,
    mask: u64,
    extended: &[u8],
) -> Option<Vec<u8>> {
    let extended = extended_state(extended)?;
    // XRSTOR needs this alignment.
    let extended_at = (at + size_of::<SignalFrame>() as u64).next_multiple_of(64);
    let r = registers;
    let frame = SignalFrame {
        return_address,
        flags: FLAGS,
        link: 0,
        alternate_stack: [0, KEEP_ALTERNATE_STACK, 0],
        registers: [
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx,
            r.rdx, r.rax, r.rcx, r.rsp, r.rip,
        ],
        eflags: r.eflags,
        segments: r.cs & 0xffff | (r.ss & 0xffff) << 48,
        faults: [0; 4],
        extended_state: extended_at,
        reserved: [0; 8],
        mask,
    };
    let mut bytes = vec![0; usize::try_from(extended_at - at).ok()?];
    // SAFETY: the frame is plain data without padding, and the slice lives as long as this statement.
    let head = unsafe {
        std::slice::from_raw_parts((&raw const frame).cast::<u8>(), size_of::<SignalFrame>())
    };
    bytes[..head.len()].copy_from_slice(head);
    bytes.extend(extended);
    Some(bytes)
}

/// The extended state with the kernel's words, as in a signal frame (`struct _fpx_sw_bytes`).
fn extended_state(raw: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(raw.get(at..at + 8)?.try_into().ok()?))
    };
    let features = number(SOFTWARE_BYTES)?;
    if number(IN_USE)? & AMX != 0 {
        return None;
    }
    let kept = features & !AMX;
    let size = if features == kept {
        raw.len()
    } else {
        raw.len().min(size_of_features(kept))
    };
    let mut state = raw.get(..size)?.to_vec();
    let size = u32::try_from(size).ok()?;
    let words = &mut state[SOFTWARE_BYTES..IN_USE];
    words.fill(0);
    words[..4].copy_from_slice(&MAGIC[0].to_le_bytes());
    words[4..8].copy_from_slice(&(size + 4).to_le_bytes());
    words[8..16].copy_from_slice(&kept.to_le_bytes());
    words[16..20].copy_from_slice(&size.to_le_bytes());
    state.extend(MAGIC[1].to_le_bytes());
    Some(state)
}

/// The size of the extended state with these features, as the processor lays it out.
fn size_of_features(features: u64) -> usize {
    let extended = (2..63).filter(|number| features >> number & 1 == 1);
    let ends = extended.map(|number| {
        let leaf = std::arch::x86_64::__cpuid_count(0xd, number);
        (leaf.eax + leaf.ebx) as usize
    });
    ends.max().unwrap_or(0).max(SMALLEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(features: u64, in_use: u64, length: usize) -> Vec<u8> {
        let mut raw = vec![0; length];
        raw[SOFTWARE_BYTES..][..8].copy_from_slice(&features.to_le_bytes());
        raw[IN_USE..][..8].copy_from_slice(&in_use.to_le_bytes());
        raw
    }

    #[test]
    fn the_state_ends_with_the_second_magic() {
        let state = extended_state(&raw(7, 7, 832)).unwrap();
        assert_eq!(state.len(), 836);
        assert_eq!(state[832..], MAGIC[1].to_le_bytes());
        assert_eq!(state[SOFTWARE_BYTES..][..4], MAGIC[0].to_le_bytes());
        assert_eq!(state[SOFTWARE_BYTES + 4..][..4], 836_u32.to_le_bytes());
        assert_eq!(state[SOFTWARE_BYTES + 16..][..4], 832_u32.to_le_bytes());
    }

    #[test]
    fn amx_is_left_out_where_it_is_not_used() {
        assert!(extended_state(&raw(7 | AMX, 7 | AMX, 11008)).is_none());
        let state = extended_state(&raw(7 | AMX, 7, 11008)).unwrap();
        assert!(state.len() < 4096);
        assert_eq!(state[SOFTWARE_BYTES + 8..][..8], 7_u64.to_le_bytes());
    }

    #[test]
    fn the_state_is_aligned_wherever_the_frame_lies() {
        // SAFETY: all fields are numbers.
        let registers: user_regs_struct = unsafe { std::mem::zeroed() };
        for at in (4096..4224).step_by(8) {
            let frame = build(at, 1, &registers, 0, &raw(3, 3, 576)).unwrap();
            let place = u64::from_le_bytes(frame[232..240].try_into().unwrap());
            assert_eq!(place % 64, 0);
            let found = &frame[usize::try_from(place - at).unwrap()..];
            assert_eq!(found[SOFTWARE_BYTES..][..4], MAGIC[0].to_le_bytes());
        }
    }
}
