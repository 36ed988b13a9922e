//! The start of a session.

use nthbyte_host::{memory, preload};
use nthbyte_profile::Meta;

use crate::config::Config;
use crate::contract::Host;
use crate::recording::Recorder;
use crate::registry::{self, AnyHost};
use crate::session::Session;
use crate::session_state::Status;
use crate::{fork, guard, last_line, missing, ring, termination};

impl Session {
    /// Opens the profile and starts the writer thread. The session asks `host` for what it does not know itself.
    ///
    /// # Errors
    /// One line that says why the file could not be opened or the thread could not be started.
    pub fn start<H: Host>(config: &Config, meta: Meta, host: &'static H) -> Result<Self, String> {
        Self::start_with(config, meta, AnyHost::of(host))
    }

    fn start_with(config: &Config, meta: Meta, host: AnyHost) -> Result<Self, String> {
        fork::watch();
        preload::find_busy_counter(host.host.busy_counter());
        if !memory::has(ring::first_bytes(&meta, config.auto)) {
            return Err("no memory for a session; raise the memory limit".to_owned());
        }
        memory::close_reserve();
        let slot = registry::claim(host);
        let session = Self::of_slot(slot);
        slot.reset();
        let recorder = Recorder::start(slot, config, meta)?;
        if !slot.lock.acquire() {
            return Err("an earlier session has not ended".to_owned());
        }
        // SAFETY: the lock was acquired; the borrow ends here.
        unsafe { *slot.recorder() = Some(recorder) };
        guard::reset();
        missing::begin();
        last_line::prepare(config.line_at_signal.as_deref());
        termination::watch(host.host.ending_signals());
        slot.set_status(Status::Running);
        slot.lock.release();
        Ok(session)
    }
}
