//! What runs in the other process: a few hundred bytes of code, and the block of data that it works on.
//!
//! The code is written in assembly, because it must not refer to anything outside of itself, in every build of this
//! crate. It never returns to the code that was interrupted: it ends with `rt_sigreturn`, and the kernel restores the
//! whole context from a frame that lies in the block. So it needs nobody who restores registers, and a thread that is
//! in it goes on as it was, also if the attacher has been killed.
//!
//! ```text
//! nthbyte_attach_add   Py_AddPendingCall(nthbyte_attach_pending, block)              ─▶ leave
//! nthbyte_attach_gil   takes the GIL if this thread waits without it, runs the script ─▶ leave
//! leave                the wait ends if a signal has come for it, `left` = 1, rt_sigreturn
//! nthbyte_attach_pending  what the interpreter calls later, in its main thread: runs the script
//! nthbyte_attach_raise    the same, to raise what a handler of the program has raised inside of the script
//! ```

use std::mem::offset_of;

use super::frame;
use crate::interpreter::FUNCTIONS;

/// The script's longest text, with the zero at its end.
pub const SCRIPT: usize = 12288;
/// The longest result, in bytes.
pub const RESULT: usize = 8192;
/// The room for a signal frame: 8 KiB of extended state are more than a processor has without AMX.
pub const FRAME: usize = 10240;

/// The values of [`Block::state`].
pub mod state {
    /// Nothing has happened.
    pub const NEW: u32 = 0;
    /// The script runs.
    pub const RUNNING: u32 = 1;
    /// The script has ended.
    pub const DONE: u32 = 2;
    /// The thread that was stopped holds the GIL, or the interpreter does not say.
    pub const HAS_GIL: u32 = 3;
    /// The interpreter is at its end.
    pub const FINALIZING: u32 = 4;
    /// The interpreter begins.
    pub const STARTING: u32 = 5;
    /// The thread has never run Python: its stack may be too small for that.
    pub const NOT_PYTHON: u32 = 6;
}

/// The data. Zero, but for what the attacher fills in.
#[repr(C, align(64))]
pub struct Block {
    /// 1 once the script has begun, or must not begin any more.
    pub once: u32,
    /// One of [`state`].
    pub state: u32,
    /// The process that the script is for: a child of a fork, which has a copy of everything, leaves it alone.
    pub pid: u32,
    /// Whether the script ended with an exception, or did not compile.
    pub failed: u32,
    /// The queued call has come. The pages must stay until then.
    pub consumed: u32,
    /// What `Py_AddPendingCall` returned.
    pub added: u32,
    /// The interrupted thread is about to continue where it was.
    pub left: u32,
    /// Whether a second call is queued, which raises the exception in `raised`.
    pub raising: u32,
    /// The signals whose handlers end the wait that the thread was stopped in. They are held back while the script runs.
    pub ends_wait: u64,
    /// Where the thread goes on if one has come.
    pub after_wait: u64,
    /// The signals that have come.
    pub pending: u64,
    /// Whether the wait ends, because the program has to get an exception that came to the script.
    pub wakes: u64,
    /// The length of the result.
    pub length: u64,
    /// An exception that a handler of the program has raised inside of the script.
    pub raised: [u64; 3],
    /// The address of `PyExc_KeyboardInterrupt`.
    pub keyboard_interrupt: u64,
    /// The addresses of [`FUNCTIONS`].
    pub functions: [u64; FUNCTIONS.len()],
    /// `__builtins__`, `result`, the name of the script's file, and `builtins`.
    pub names: [[u8; 24]; 4],
    /// The result: the variable `result` of the script, as UTF-8.
    pub result: [u8; RESULT],
    /// The script.
    pub script: [u8; SCRIPT],
    /// The frame that `rt_sigreturn` restores.
    pub frame: Aligned,
}

/// Bytes at a multiple of 64.
#[repr(C, align(64))]
pub struct Aligned(pub [u8; FRAME]);

/// The offset of a function's address in the block.
const fn function(name: &str) -> usize {
    let mut number = 0;
    while number < FUNCTIONS.len() {
        if is_same(FUNCTIONS[number], name) {
            return offset_of!(Block, functions) + 8 * number;
        }
        number += 1;
    }
    panic!("no such function")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

// rbx is the block in all of it. The interpreter's functions keep rbx, rbp and r12 to r15.
std::arch::global_asm!(
    r#"
    .pushsection .rodata.nthbyte_attach, "a", @progbits
    .balign 16
    .globl nthbyte_attach_begin, nthbyte_attach_end
    .globl nthbyte_attach_add, nthbyte_attach_gil
nthbyte_attach_begin:

nthbyte_attach_add:
    mov rbx, rdi
    lea rdi, [rip + nthbyte_attach_pending]
    mov rsi, rbx
    call [rbx + {add_pending_call}]
    mov [rbx + {added}], eax
    jmp 9f

nthbyte_attach_gil:
    mov rbx, rdi
    call [rbx + {is_initialized}]
    mov ecx, {STARTING}
    test eax, eax
    jz 8f
    call [rbx + {is_finalizing}]
    mov ecx, {FINALIZING}
    test eax, eax
    jnz 8f
    call [rbx + {this_thread_state}]
    mov ecx, {NOT_PYTHON}
    test rax, rax
    jz 8f
    call [rbx + {gil_check}]
    mov ecx, {HAS_GIL}
    test eax, eax
    jnz 8f
    call [rbx + {gil_ensure}]
    mov r12d, eax
    xor edi, edi
    call 20f
    mov edi, r12d
    call [rbx + {gil_release}]
    jmp 9f
8:
    mov [rbx + {state}], ecx
9:
    // The kernel would deliver a signal that was held back before the wait begins again, and the wait would not end.
    cmp qword ptr [rbx + {after_wait}], 0
    je 7f
    cmp qword ptr [rbx + {wakes}], 0
    jne 6f
    mov eax, {SIGPENDING}
    lea rdi, [rbx + {pending}]
    mov esi, 8
    syscall
    mov rax, [rbx + {pending}]
    test [rbx + {ends_wait}], rax
    jz 7f
6:
    mov qword ptr [rbx + {frame} + {RAX}], -{EINTR}
    mov rax, [rbx + {after_wait}]
    mov [rbx + {frame} + {RIP}], rax
7:
    mov dword ptr [rbx + {left}], 1
    lea rsp, [rbx + {frame} + 8]
    mov eax, 15
    syscall
    ud2

nthbyte_attach_pending:
    push rbx
    mov rbx, rdi
    mov edi, 1
    call 20f
    mov dword ptr [rbx + {consumed}], 1
    pop rbx
    ret

nthbyte_attach_raise:
    push rbx
    mov rbx, rdi
    mov rdi, [rbx + {raised}]
    mov rsi, [rbx + {raised} + 8]
    mov rdx, [rbx + {raised} + 16]
    call [rbx + {err_restore}]
    mov eax, -1
    mov dword ptr [rbx + {raising}], 0
    pop rbx
    ret

    // Runs the script, once, with the GIL. edi: whether an exception may leave it. Returns 0, or -1 with an exception.
20:
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 64
    mov r12d, edi
    xor ebp, ebp
    call [rbx + {is_initialized}]
    test eax, eax
    jnz 21f
    mov dword ptr [rbx + {state}], {STARTING}
    jmp 39f
21:
    mov eax, 39
    syscall
    cmp eax, [rbx + {pid}]
    jne 39f
    mov eax, 1
    xchg eax, [rbx + {once}]
    test eax, eax
    jnz 39f
    mov dword ptr [rbx + {state}], {RUNNING}
    lea rdi, [rsp]
    lea rsi, [rsp + 8]
    lea rdx, [rsp + 16]
    call [rbx + {err_fetch}]
    xor r13d, r13d
    xor r14d, r14d
    xor r15d, r15d
    lea rdi, [rbx + {script}]
    lea rsi, [rbx + {names} + 48]
    mov edx, 257
    call [rbx + {compile_string}]
    mov r13, rax
    test rax, rax
    jz 30f
    call [rbx + {dict_new}]
    mov r14, rax
    test rax, rax
    jz 30f
    // Not the running frame's: code may have names without them (`namedtuple` executes such code).
    call [rbx + {module_dict}]
    test rax, rax
    jz 24f
    mov rdi, rax
    lea rsi, [rbx + {names} + 72]
    call [rbx + {dict_get}]
    test rax, rax
    jz 24f
    mov rdi, rax
    call [rbx + {get_dict}]
    test rax, rax
    jnz 25f
24:
    call [rbx + {err_clear}]
    call [rbx + {get_builtins}]
    test rax, rax
    jz 30f
25:
    mov rdi, r14
    lea rsi, [rbx + {names}]
    mov rdx, rax
    call [rbx + {dict_set}]
    test eax, eax
    jnz 30f
    mov rdi, r13
    mov rsi, r14
    mov rdx, r14
    call [rbx + {eval_code}]
    mov r15, rax
    test rax, rax
    jnz 23f
    mov dword ptr [rbx + {failed}], 1
    lea rdi, [rsp + 32]
    lea rsi, [rsp + 40]
    lea rdx, [rsp + 48]
    call [rbx + {err_fetch}]
23:
    mov rdi, r14
    lea rsi, [rbx + {names} + 24]
    call [rbx + {dict_get}]
    test rax, rax
    jz 22f
    mov rdi, rax
    lea rsi, [rsp + 24]
    call [rbx + {as_utf8}]
    test rax, rax
    jz 22f
    mov rcx, [rsp + 24]
    mov edx, {RESULT}
    cmp rcx, rdx
    cmova rcx, rdx
    mov [rbx + {length}], rcx
    mov rsi, rax
    lea rdi, [rbx + {result}]
    rep movsb
22:
    call [rbx + {err_clear}]
    test r15, r15
    jz 32f
    jmp 36f

    // Before the script: there is no memory for it.
30:
    mov dword ptr [rbx + {failed}], 1
    call [rbx + {err_clear}]
    jmp 36f

    // The script lets only exceptions of the program's handlers out. It may have its result then.
32:
    test r12d, r12d
    jz 33f
    // What was there before, which is nothing where the interpreter makes pending calls, gives way.
    mov rdi, [rsp]
    test rdi, rdi
    jz 34f
    call [rbx + {dec_ref}]
    mov rdi, [rsp + 8]
    test rdi, rdi
    jz 35f
    call [rbx + {dec_ref}]
35:
    mov rdi, [rsp + 16]
    test rdi, rdi
    jz 34f
    call [rbx + {dec_ref}]
34:
    mov rax, [rsp + 32]
    mov [rsp], rax
    mov rax, [rsp + 40]
    mov [rsp + 8], rax
    mov rax, [rsp + 48]
    mov [rsp + 16], rax
    mov ebp, -1
    jmp 36f
33:
    mov qword ptr [rbx + {wakes}], 1
    // Nothing can be raised from here. Ctrl-C comes once more; anything else is raised by a call of its own.
    mov rdi, [rsp + 32]
    mov rsi, [rsp + 40]
    mov rdx, [rsp + 48]
    call [rbx + {err_restore}]
    mov rdi, [rbx + {keyboard_interrupt}]
    test rdi, rdi
    jz 31f
    mov rdi, [rdi]
    call [rbx + {err_matches}]
    test eax, eax
    jz 31f
    call [rbx + {err_clear}]
    call [rbx + {set_interrupt}]
    jmp 36f
31:
    lea rdi, [rbx + {raised}]
    lea rsi, [rbx + {raised} + 8]
    lea rdx, [rbx + {raised} + 16]
    call [rbx + {err_fetch}]
    mov dword ptr [rbx + {raising}], 1
    lea rdi, [rip + nthbyte_attach_raise]
    mov rsi, rbx
    call [rbx + {add_pending_call}]

36:
    mov rdi, r15
    test rdi, rdi
    jz 37f
    call [rbx + {dec_ref}]
37:
    mov rdi, r14
    test rdi, rdi
    jz 38f
    call [rbx + {dec_ref}]
38:
    mov rdi, r13
    test rdi, rdi
    jz 40f
    call [rbx + {dec_ref}]
40:
    mov rdi, [rsp]
    mov rsi, [rsp + 8]
    mov rdx, [rsp + 16]
    call [rbx + {err_restore}]
    mov dword ptr [rbx + {state}], {DONE}
39:
    mov eax, ebp
    add rsp, 64
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    ret

nthbyte_attach_end:
    .popsection
    "#,
    add_pending_call = const function("Py_AddPendingCall"),
    compile_string = const function("Py_CompileString"),
    eval_code = const function("PyEval_EvalCode"),
    get_builtins = const function("PyEval_GetBuiltins"),
    module_dict = const function("PyImport_GetModuleDict"),
    get_dict = const function("PyModule_GetDict"),
    dict_new = const function("PyDict_New"),
    dict_set = const function("PyDict_SetItemString"),
    dict_get = const function("PyDict_GetItemString"),
    as_utf8 = const function("PyUnicode_AsUTF8AndSize"),
    dec_ref = const function("Py_DecRef"),
    err_fetch = const function("PyErr_Fetch"),
    err_restore = const function("PyErr_Restore"),
    err_clear = const function("PyErr_Clear"),
    gil_ensure = const function("PyGILState_Ensure"),
    gil_release = const function("PyGILState_Release"),
    gil_check = const function("PyGILState_Check"),
    this_thread_state = const function("PyGILState_GetThisThreadState"),
    is_initialized = const function("Py_IsInitialized"),
    is_finalizing = const function("Py_IsFinalizing"),
    set_interrupt = const function("PyErr_SetInterrupt"),
    err_matches = const function("PyErr_ExceptionMatches"),
    once = const offset_of!(Block, once),
    state = const offset_of!(Block, state),
    pid = const offset_of!(Block, pid),
    failed = const offset_of!(Block, failed),
    consumed = const offset_of!(Block, consumed),
    added = const offset_of!(Block, added),
    left = const offset_of!(Block, left),
    raising = const offset_of!(Block, raising),
    ends_wait = const offset_of!(Block, ends_wait),
    after_wait = const offset_of!(Block, after_wait),
    pending = const offset_of!(Block, pending),
    wakes = const offset_of!(Block, wakes),
    length = const offset_of!(Block, length),
    raised = const offset_of!(Block, raised),
    keyboard_interrupt = const offset_of!(Block, keyboard_interrupt),
    names = const offset_of!(Block, names),
    result = const offset_of!(Block, result),
    script = const offset_of!(Block, script),
    frame = const offset_of!(Block, frame),
    STARTING = const state::STARTING,
    FINALIZING = const state::FINALIZING,
    NOT_PYTHON = const state::NOT_PYTHON,
    HAS_GIL = const state::HAS_GIL,
    RUNNING = const state::RUNNING,
    DONE = const state::DONE,
    RESULT = const RESULT,
    SIGPENDING = const libc::SYS_rt_sigpending,
    EINTR = const libc::EINTR,
    RAX = const frame::RAX,
    RIP = const frame::RIP,
);

unsafe extern "C" {
    static nthbyte_attach_begin: u8;
    static nthbyte_attach_end: u8;
    static nthbyte_attach_add: u8;
    static nthbyte_attach_gil: u8;
}

/// The code.
pub fn code() -> &'static [u8] {
    let (begin, end) = (
        &raw const nthbyte_attach_begin,
        &raw const nthbyte_attach_end,
    );
    // SAFETY: both labels stand in one section, in this order, and what lies between them is never changed.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// The place in the code that queues the call.
pub fn add() -> u64 {
    offset(&raw const nthbyte_attach_add)
}

/// The place in the code that takes the GIL.
pub fn gil() -> u64 {
    offset(&raw const nthbyte_attach_gil)
}

fn offset(label: *const u8) -> u64 {
    let begin = &raw const nthbyte_attach_begin;
    (label.addr() - begin.addr()) as u64
}
