//! The processes of a profile: what each allocated.

use std::collections::BTreeMap;

use nthbyte_profile::Profile;
use nthbyte_profile::event::Memory;
use serde::Serialize;

use crate::aggregate::Aggregate;
use crate::estimate::Estimate;

/// A process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessSummary {
    /// Its number.
    pub pid: u32,
    /// The number of the process that started it, if that one was profiled too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_pid: Option<u32>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Interpreter and version.
    pub interpreter: String,
    /// Its labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The machine or the container that it ran on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When its session began: nanoseconds since 1970 UTC.
    pub started_unix_nanos: u64,
    /// The same, in nanoseconds since the first process's session began.
    pub start_nanos: u64,
    /// How long its session took, in nanoseconds.
    pub duration_nanos: u64,
    /// Number of its allocation samples.
    pub samples: u64,
    /// Bytes that it allocated, estimated from the samples.
    pub bytes: Estimate,
    /// Bytes that it allocated: as the agent counted them to the end, else the estimate.
    pub bytes_allocated: u64,
    /// Whether the agent counted them to the end.
    pub bytes_counted: bool,
    /// The most heap memory that it had in use, in bytes; what it had from its parent included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_heap_used: Option<u64>,
    /// Its largest resident set, in bytes. Processes share pages: the sum of several is more than what they
    /// take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss: Option<u64>,
    /// Whether its session ended in an orderly way.
    pub complete: bool,
    /// What ended it or its session early, if that is known: a signal, or a full disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
}

impl ProcessSummary {
    /// The process in a few words: as [`Process::label`](nthbyte_profile::model::Process::label).
    #[must_use]
    pub fn label(&self) -> String {
        nthbyte_profile::model::process_label(self.pid, self.parent_pid)
    }
}

/// The largest resident set.
pub(super) fn peak_rss(memory: &[Memory]) -> Option<u64> {
    let peaks = memory.iter().map(|at| at.peak_rss.max(at.rss));
    peaks.max().flatten()
}

pub(super) fn of(profile: &Profile, aggregate: &Aggregate) -> Vec<ProcessSummary> {
    let numbered = profile.process_ids().zip(&aggregate.processes);
    numbered
        .map(|(number, totals)| {
            let process = &profile.processes[number.index()];
            // The figures of a profile of one process are that process's.
            let (duration, complete, counted) = if profile.processes.len() > 1 {
                (process.duration(), process.complete, process.allocated)
            } else {
                (profile.end, profile.complete, profile.allocated)
            };
            let all = totals.all;
            let bytes = aggregate.estimator.bytes(&all);
            let memory = profile.memory_of(number).iter();
            let peak = |total: fn(&Memory) -> Option<u64>| memory.clone().filter_map(total).max();
            ProcessSummary {
                pid: process.meta.pid,
                parent_pid: process.meta.parent_pid,
                command: process.meta.command.clone(),
                interpreter: process.meta.interpreter.clone(),
                tags: process.meta.tags.clone(),
                host: process.meta.host.clone(),
                started_unix_nanos: process.meta.started_unix_nanos,
                start_nanos: process.start.0,
                duration_nanos: duration.0,
                samples: all.samples,
                bytes,
                bytes_allocated: counted.unwrap_or(bytes.estimate as u64),
                bytes_counted: counted.is_some(),
                peak_heap_used: peak(|memory| memory.heap_used),
                peak_rss: peak_rss(profile.memory_of(number)),
                complete,
                ended_by: process.ended_by.clone(),
            }
        })
        .collect()
}
