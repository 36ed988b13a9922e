//! The processes of a profile that has several, each as a profile of its own: what leaks is judged in each process by itself.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Collection, Memory, Nanos};
use nthbyte_profile::model::{ProcessId, Sample, Samples};

/// The profile of each process, in the order of their starts. Times are since the start of that process. The stack tree and
/// the other tables are those of all processes; events that were lost may have been those of any process.
pub(super) fn of(profile: &Profile) -> Vec<Profile> {
    let mut samples = vec![Samples::default(); profile.processes.len()];
    for sample in profile.samples.iter() {
        let process = profile.process_of(sample.thread);
        if let Some(start) = start(profile, process) {
            samples[process.index()].push(Sample {
                time: since(sample.time, start),
                freed: sample.freed.map(|freed| since(freed, start)),
                ..sample
            });
        }
    }
    let processes = profile.process_ids().zip(samples);
    processes
        .map(|(process, samples)| part(profile, process, samples))
        .collect()
}

fn start(profile: &Profile, process: ProcessId) -> Option<Nanos> {
    let process = profile.processes.get(process.index());
    process.map(|process| process.start)
}

fn since(time: Nanos, start: Nanos) -> Nanos {
    Nanos(time.0.saturating_sub(start.0))
}

fn part(profile: &Profile, id: ProcessId, samples: Samples) -> Profile {
    let process = &profile.processes[id.index()];
    let collections = profile.collections.iter();
    let own = collections.filter(|collection| profile.process_of(collection.thread) == id);
    let memory = profile.memory_of(id).iter();
    let mut part = Profile::empty(process.meta.clone());
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
    part.lost.clone_from(&profile.lost);
    part.damage.clone_from(&profile.damage);
    part.end = process.duration();
    part.complete = process.complete;
    part.allocated = process.allocated;
    part
}
