//! Many profiles read as one. Alone in its file: what was looked at is counted for the whole process.

use nthbyte_profile::event::{Event, Memory, Nanos};
use nthbyte_profile::synthetic::{Synthetic, rows_looked_at};
use nthbyte_profile::{Meta, Profile, Writer};

/// Thousands of files whose samples do not fit: each more file may not cost a look at all before it.
#[test]
fn a_sample_is_looked_at_a_few_times_however_many_files_there_are() {
    const FILES: u32 = 100;
    const SAMPLES: u32 = 500;
    const TOTALS: u64 = 4_000;
    const LARGE: u64 = 1 << 50;
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<_> = (0..FILES)
        .map(|number| {
            let path = folder.path().join(format!("{number}.nthb"));
            let made = Synthetic {
                samples: SAMPLES,
                seed: number.into(),
                hostile: false,
                ..Synthetic::default()
            };
            let meta = Meta {
                pid: 100 + number,
                ..made.meta()
            };
            let file = std::fs::File::create(&path).expect("a file");
            let mut writer = Writer::new(file, &meta).expect("a header");
            for at in 0..TOTALS {
                let total = Memory {
                    time: Nanos(at),
                    rss: Some(LARGE + at % 1_000 + u64::from(number)),
                    ..Memory::default()
                };
                writer.write(&Event::Memory(total)).expect("a total");
            }
            let end = made.events(|event| writer.write(event).expect("an event"));
            writer.finish(end).expect("an end");
            path
        })
        .collect();
    let most = 10 * SAMPLES as usize;
    let before = rows_looked_at();
    let thin = Profile::load_some(&paths, most, |_, _| ()).expect("profiles");
    let looked_at = rows_looked_at() - before;
    let count = thin.samples.len();
    assert!(most / 4 < count && count <= most, "{count}");
    let samples = u64::from(FILES * SAMPLES);
    // Nor do the totals of memory grow with the files; the peaks stay.
    for (number, process) in (0..).zip(&thin.processes) {
        assert!(process.memory.len() < TOTALS as usize / 4, "{number}");
        let peak = process.memory.iter().filter_map(|total| total.rss).max();
        assert_eq!(peak, Some(LARGE + 999 + number));
    }
    assert!(looked_at <= 2 * samples, "{looked_at} rows of {samples}");
}
