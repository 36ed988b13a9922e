//! `nthbyte run-program`: what `nthbyte run -- ./program` executes, and not in the help. The launcher has read the options
//! of `run`; here the program is checked, and takes the place of this process. The agent for such programs is preloaded: it
//! begins the session before the program's `main`, and takes itself and its settings out of the environment
//! (`crates/program`).

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::ptr;

use anyhow::{Context, Result, bail};
use clap::Args;
use object::elf::{EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_RISCV, EM_X86_64};
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};
use rustix::fs::Access;
use serde::{Deserialize, Serialize};

use crate::output::say;

/// The variable with the settings, which `crates/program/src/settings.rs` reads.
const VARIABLE: &str = "NTHBYTE_PROGRAM";
const PRELOAD: &str = "LD_PRELOAD";

const OWN_PROCESSOR: u16 = if cfg!(target_arch = "aarch64") {
    EM_AARCH64
} else {
    EM_X86_64
};
/// The kernel takes no longer path of a dynamic linker.
const LONGEST_PATH: u64 = 4096;

/// What `run-program` takes.
#[derive(Args)]
pub struct Arguments {
    /// JSON: see [`Settings`].
    #[arg(long)]
    settings: String,
    /// Where the libraries are.
    #[arg(long)]
    folder: OsString,
    /// The program's file.
    path: PathBuf,
    /// Its command line, which begins with its name.
    #[arg(allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// What the launcher says, and with `preload` what the agent reads.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    session: serde_json::Value,
    force: bool,
    quiet: bool,
    /// Which of the descriptors 0 to 2 the program does not have: this process was given others in their place.
    #[serde(skip_serializing)]
    closed: Vec<i32>,
    /// The value of `LD_PRELOAD` without nthbyte, as numbers: it need not be UTF-8.
    #[serde(skip_deserializing)]
    preload: Option<Vec<u8>>,
}

impl Arguments {
    /// Becomes the program. Returns only if that is not possible: status 2 if another program has to be named.
    ///
    /// # Errors
    /// If the system does not start it.
    pub fn run(self) -> Result<ExitCode> {
        let mut settings: Settings = serde_json::from_str(&self.settings)?;
        let refused = match (check(&self.path), libraries(&self.folder)) {
            (Err(error), _) | (_, Err(error)) => error,
            (Ok(()), Ok(libraries)) => {
                settings.preload = std::env::var_os(PRELOAD).map(OsString::into_vec);
                let environment = environment(libraries, &settings)?;
                let error = execute(&self.path, self.command, environment, &settings.closed)?;
                let path = self.path.display();
                if error.kind() == io::ErrorKind::NotFound && self.path.exists() {
                    bail!("cannot run {path}: its dynamic linker is missing");
                }
                return Err(error).with_context(|| format!("cannot run {path}"));
            }
        };
        say!("nthbyte: {refused}");
        Ok(ExitCode::from(2))
    }
}

/// Finds out whether the program can be profiled.
///
/// # Errors
/// One line for the user, if it cannot.
fn check(path: &Path) -> Result<()> {
    let name = path.display();
    if rustix::fs::access(path, Access::EXEC_OK).is_err() {
        bail!("{name} is not executable: make it so with chmod +x");
    }
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let elf = read(&ReadCache::new(file))
        .with_context(|| format!("{name} is a damaged program: its headers cannot be read"));
    match elf? {
        Elf::Foreign(machine) => bail!(
            "{name} is built for {}: nthbyte profiles native programs for {} here",
            processor(machine),
            processor(OWN_PROCESSOR)
        ),
        Elf::Static => bail!(
            "{name} is statically linked, so nothing can be preloaded: link it dynamically (without -static)"
        ),
        Elf::Dynamic(linker) => {
            let file = linker.rsplit(|&byte| byte == b'/').next();
            if !file.is_some_and(|name| name.starts_with(b"ld-linux")) {
                let linker = String::from_utf8_lossy(&linker);
                bail!("{name} needs {linker}: nthbyte works with the GNU C library only");
            }
        }
    }
    if gains_rights(path)? {
        bail!(
            "{name} runs with other rights than yours (setuid), so nothing can be preloaded: run nthbyte as its owner"
        );
    }
    Ok(())
}

/// What matters of a program's file.
enum Elf {
    /// It is for another processor.
    Foreign(u16),
    /// It needs no dynamic linker.
    Static,
    /// The path of its dynamic linker.
    Dynamic(Vec<u8>),
}

fn read(data: &ReadCache<File>) -> object::read::Result<Elf> {
    if FileKind::parse(data)? == FileKind::Elf32 {
        let header = FileHeader32::<Endianness>::parse(data)?;
        let machine = header.e_machine(header.endian()?);
        // A program for this processor with addresses of 32 bits (x32) counts as one for another.
        return Ok(Elf::Foreign(if machine == OWN_PROCESSOR {
            0
        } else {
            machine
        }));
    }
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    if header.e_machine(endian) != OWN_PROCESSOR {
        return Ok(Elf::Foreign(header.e_machine(endian)));
    }
    for segment in header.program_headers(endian, data)? {
        if segment.p_filesz(endian) <= LONGEST_PATH
            && let Some(linker) = segment.interpreter(endian, data)?
        {
            return Ok(Elf::Dynamic(linker.to_vec()));
        }
    }
    Ok(Elf::Static)
}

fn processor(machine: u16) -> &'static str {
    match machine {
        EM_386 => "x86 with 32 bits",
        EM_ARM => "ARM with 32 bits",
        EM_X86_64 => "x86-64",
        EM_AARCH64 => "AArch64",
        EM_RISCV => "RISC-V",
        EM_LOONGARCH => "LoongArch",
        _ => "another processor",
    }
}

/// Whether the dynamic linker would preload nothing for this user.
fn gains_rights(path: &Path) -> io::Result<bool> {
    let status = fs::metadata(path)?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let gains_user = status.mode() & 0o4000 != 0 && status.uid() != user.as_raw();
    let gains_group = status.mode() & 0o2000 != 0 && status.gid() != group.as_raw();
    let capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0; 64][..]);
    Ok(gains_user || gains_group || (!user.is_root() && capabilities.is_ok_and(|size| size > 0)))
}

/// The value of `LD_PRELOAD` that loads the agent.
///
/// # Errors
/// One line for the user, if the dynamic linker would split it.
fn libraries(folder: &OsStr) -> Result<Vec<u8>> {
    if folder
        .as_bytes()
        .iter()
        .any(|&byte| b": \t\n\r".contains(&byte))
    {
        let folder = folder.display();
        bail!("the path of nthbyte has a space or a colon, so nothing can be preloaded: {folder}");
    }
    let paths = ["native", "program"].map(|name| {
        let mut path = folder.to_owned();
        path.push(format!("/libnthbyte_{name}.so"));
        path.into_vec()
    });
    Ok(paths.join(&b':'))
}

/// The environment of this process in its order, with the agent and its settings.
fn environment(mut libraries: Vec<u8>, settings: &Settings) -> Result<Vec<CString>> {
    if let Some(before) = &settings.preload {
        libraries.push(b':');
        libraries.extend(before);
    }
    let preload = || {
        (
            OsString::from(PRELOAD),
            OsString::from_vec(libraries.clone()),
        )
    };
    // Another one's value stands where it stood.
    let kept = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
    let kept = kept.map(|variable| match variable.0 == PRELOAD {
        true => preload(),
        false => variable,
    });
    let first = settings.preload.is_none().then(preload);
    let ours = (VARIABLE.into(), serde_json::to_string(settings)?.into());
    let entries = kept.chain(first).chain([ours]).map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        Ok(CString::new(name.into_vec())?)
    });
    entries.collect()
}

/// Replaces this process by the program. Returns why that failed. The `exec` of the standard library would sort the
/// environment, and ask a shell to run what the kernel does not know.
fn execute(
    path: &Path,
    command: Vec<OsString>,
    environment: Vec<CString>,
    closed: &[i32],
) -> Result<io::Error> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let words = command
        .into_iter()
        .map(|word| CString::new(word.into_vec()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        let texts = texts.iter().map(|text| text.as_ptr());
        texts.chain([ptr::null()]).collect()
    };
    let (words_at, variables_at) = (pointers(&words), pointers(&environment));
    // SAFETY: Rust ignores the signal, and this process has no other handler for it. The descriptors are those that Rust has
    // opened where there were none; nothing is written to them any more if all goes well. The strings end with zeroes, and
    // the arrays of their addresses with null pointers; both live until the call returns.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        for &descriptor in closed {
            libc::close(descriptor);
        }
        libc::execve(path.as_ptr(), words_at.as_ptr(), variables_at.as_ptr());
    }
    Ok(io::Error::last_os_error())
}
