//! Folders of this process's files that another process can use, whatever its own root has: as descriptors.
//!
//! A path below `/proc/self/fd/N` leads from the folder itself, past the process's root and the folders above. So nothing is put into a
//! container: its files may all be read-only, or not be executed.
//!
//! ```text
//! script   socketpair()  ─▶ two numbers
//! here     pidfd_getfd(one of them), sendmsg(SCM_RIGHTS)
//! script   recvmsg(the other) ─▶ the numbers of the folders; both ends are closed
//! ```

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nthbyte_attach::{Awaited, Target};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Makes two sockets that are connected to each other.
const PAIR: &str = "
from _socket import socketpair
one, other = socketpair()
result = f'{one.detach()} {other.detach()}'
";

/// Folders that a process has been given: the package, and where the profile is written.
#[derive(Debug)]
pub struct Given {
    numbers: [u32; 2],
    /// The device and the inode of each.
    identities: [(u64, u64); 2],
}

impl Given {
    /// Gives a process two folders.
    ///
    /// # Errors
    /// If the process runs no Python code within `limit`, or the system refuses.
    pub fn give(pid: u32, folders: [&Path; 2], limit: Duration) -> Result<Self> {
        let target = Target::open(pid)?;
        let made = target.run(PAIR, limit, &Awaited::default())?;
        let ends: Vec<i32> = made.split(' ').filter_map(|end| end.parse().ok()).collect();
        let [one, other] = ends[..] else {
            bail!("process {pid} has no descriptors left");
        };
        let sent = send(pid, one, folders);
        // Also if nothing was sent: it closes both ends.
        let received = target.run(&receive(one, other), limit, &Awaited::default())?;
        sent.context("a folder cannot be given to the process")?;
        let numbers: Vec<u32> = received
            .split(' ')
            .filter_map(|number| number.parse().ok())
            .collect();
        let [package, output] = numbers[..] else {
            bail!("process {pid} has no descriptors left");
        };
        let identity = |path: &Path| super::watch::identity(path).context("the folder is gone");
        Ok(Self {
            numbers: [package, output],
            identities: [identity(folders[0])?, identity(folders[1])?],
        })
    }

    /// The package, as the process sees it.
    pub fn package(&self) -> PathBuf {
        seen(self.numbers[0])
    }

    /// The folder for the profile, as the process sees it.
    pub fn output(&self) -> PathBuf {
        seen(self.numbers[1])
    }

    /// Lets the process close them, but for a package that it has imported nthbyte from, which may import more later. A process that
    /// does not answer keeps both.
    pub fn close(&self, pid: u32, limit: Duration) {
        let [package, output] = self.numbers;
        let [of_package, of_output] = self.identities;
        let script = format!(
            "
import posix, sys
package = sys.modules.get('nthbyte')
is_used = '{}' in getattr(package, '__path__', ())
for number, device, inode in (({package}, {}, {}),)[is_used:] + (({output}, {}, {}),):
    try:
        found = posix.fstat(number)
        if (found.st_dev, found.st_ino) == (device, inode):
            posix.close(number)
    except OSError:
        pass
result = ''
",
            seen(package).display(),
            of_package.0,
            of_package.1,
            of_output.0,
            of_output.1,
        );
        if let Ok(target) = Target::open(pid) {
            // What it does not close is closed at its end.
            let _ = target.run(&script, limit, &Awaited::default());
        }
    }
}

fn seen(number: u32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{number}"))
}

/// Takes the folders that were sent, and closes both ends. It waits for nothing.
fn receive(one: i32, other: i32) -> String {
    format!(
        "
import _socket, posix, sys
own = _socket.socket(fileno={other})
posix.close({one})
result = ''
try:
    _, more, _, _ = own.recvmsg(1, _socket.CMSG_SPACE(8), _socket.MSG_DONTWAIT | {MSG_CMSG_CLOEXEC})
    for _, _, data in more:
        result = ' '.join(str(int.from_bytes(data[at:at + 4], sys.byteorder)) for at in range(0, len(data), 4))
except OSError:
    pass
finally:
    own.close()
"
    )
}

/// `MSG_CMSG_CLOEXEC`, which older Pythons have no name for.
const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;

/// Sends folders through one end of a socket of the process.
fn send(pid: u32, end: i32, folders: [&Path; 2]) -> Result<()> {
    let opened = [File::open(folders[0])?, File::open(folders[1])?];
    let socket = descriptor_of(pid, end)?;
    let opened: [BorrowedFd<'_>; 2] = [opened[0].as_fd(), opened[1].as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut more = SendAncillaryBuffer::new(&mut space);
    more.push(SendAncillaryMessage::ScmRights(&opened));
    sendmsg(
        &socket,
        &[IoSlice::new(b"f")],
        &mut more,
        SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// A descriptor of another process.
fn descriptor_of(pid: u32, number: i32) -> Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(
        pid.context("no process has this number")?,
        PidfdFlags::empty(),
    )?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}
