//! The processes of a profile that has several, each as a profile of its own: what leaks is judged in each process by itself.

use nthbyte_profile::event::{Collection, LostKind, Memory, Nanos, SampleId};
use nthbyte_profile::model::{ProcessId, Sample, Samples};
use nthbyte_profile::{Activity, Profile};

/// The profile of each process, in the order of their starts. Times are since the start of that process. The stack tree and
/// the other tables are of all processes. Lost events of no known process may have been any process's.
pub(super) fn of(profile: &Profile) -> Vec<Profile> {
    let mut samples = vec![Samples::default(); profile.processes.len()];
    // Snapshots refer to samples. A number in the samples of the process.
    let has_snapshots = profile.processes.iter().any(|of| !of.snapshots.is_empty());
    let mut numbers: Vec<SampleId> = Vec::new();
    for sample in profile.samples.iter() {
        let process = profile.process_of(sample.thread);
        if has_snapshots {
            let before = samples.get(process.index()).map_or(0, Samples::len);
            numbers.push(SampleId(before as u32));
        }
        if let Some(start) = start(profile, process) {
            samples[process.index()].push(Sample {
                time: since(sample.time, start),
                freed: sample.freed.map(|freed| since(freed, start)),
                ..sample
            });
        }
    }
    let known = profile.processes.iter().map(|process| process.lost);
    let unknown = lost(profile).saturating_sub(known.fold(0, u64::saturating_add));
    let processes = profile.process_ids().zip(samples);
    processes
        .map(|(process, samples)| part(profile, process, samples, unknown, &numbers))
        .collect()
}

fn start(profile: &Profile, process: ProcessId) -> Option<Nanos> {
    let process = profile.processes.get(process.index());
    process.map(|process| process.start)
}

fn since(time: Nanos, start: Nanos) -> Nanos {
    Nanos(time.0.saturating_sub(start.0))
}

fn part(
    profile: &Profile,
    id: ProcessId,
    samples: Samples,
    unknown: u64,
    numbers: &[SampleId],
) -> Profile {
    let process = &profile.processes[id.index()];
    let collections = profile.collections.iter();
    let own = collections.filter(|collection| profile.process_of(collection.thread) == id);
    let memory = profile.memory_of(id).iter();
    let mut part = Profile::empty(process.meta.clone());
    if let Some(only) = part.processes.first_mut() {
        let since_start = |activity: &Activity| Activity {
            time: since(activity.time, process.start),
            ..*activity
        };
        only.activity = process.activity.iter().map(since_start).collect();
        only.snapshots.clone_from(&process.snapshots);
        for snapshot in &mut only.snapshots {
            snapshot.time = since(snapshot.time, process.start);
            snapshot.renumber(|of| numbers.get(of.0 as usize).copied());
        }
    }
    part.sources.clone_from(&profile.sources);
    part.samplings.clone_from(&profile.samplings);
    part.label_sets.clone_from(&profile.label_sets);
    part.functions.clone_from(&profile.functions);
    part.frames.clone_from(&profile.frames);
    part.stacks.clone_from(&profile.stacks);
    part.types.clone_from(&profile.types);
    part.threads.clone_from(&profile.threads);
    part.samples = samples;
    part.collections = own
        .map(|collection| Collection {
            start: since(collection.start, process.start),
            ..*collection
        })
        .collect();
    part.memory = memory
        .map(|memory| Memory {
            time: since(memory.time, process.start),
            ..*memory
        })
        .collect();
    let lost = process.lost.saturating_add(unknown);
    part.lost
        .extend((lost > 0).then_some((LostKind::Other, lost)));
    part.damage.clone_from(&profile.damage);
    part.end = process.duration();
    part.complete = process.complete;
    part.allocated = process.allocated;
    part
}

/// Number of events that the agent dropped, which may include frees. Time samples say nothing of lifetimes.
pub(super) fn lost(profile: &Profile) -> u64 {
    let lost = profile.lost.iter();
    let lost = lost.filter(|(kind, _)| *kind != LostKind::CpuSamples);
    let counts = lost.map(|(_, count)| *count);
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::Meta;
    use nthbyte_profile::model::Process;

    use super::*;

    #[test]
    fn what_one_process_has_lost_says_nothing_of_the_others() {
        let mut profile = Profile::empty(Meta::default());
        let second = Process::new(Meta::default(), Nanos(0));
        let first = Process {
            lost: 300,
            ..second.clone()
        };
        profile.processes = vec![first, second];
        profile.lost = vec![(LostKind::Allocations, 300), (LostKind::CpuSamples, 7)];
        let lost_by_process = |profile: &Profile| of(profile).iter().map(lost).collect::<Vec<_>>();
        assert_eq!(lost_by_process(&profile), [300, 0]);
        // Of merged files of older versions it is not known whose they are.
        profile.lost.push((LostKind::Other, 5));
        assert_eq!(lost_by_process(&profile), [305, 5]);
    }
}
