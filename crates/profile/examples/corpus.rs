//! Writes the corpus of the fuzz targets: `corpus fuzz/corpus`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Profile, Reader, Writer};

/// Bytes of a block's header.
const HEADER: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: corpus FOLDER")?);
    let (files, blocks) = (folder.join("file"), folder.join("block"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&blocks)?;
    let setup = Synthetic {
        samples: 300,
        hostile: true,
        ..Synthetic::default()
    };
    let empty = Writer::new(Vec::new(), &setup.meta())?.get_ref().clone();
    fs::write(files.join("empty"), &empty)?;
    for (name, distances) in [
        ("exponential", Distances::Exponential),
        ("fixed", Distances::Fixed),
        ("every", Distances::Every),
    ] {
        let bytes = Synthetic { distances, ..setup }.bytes();
        fs::write(files.join(name), &bytes)?;
        fs::write(files.join(format!("{name}-cut")), &bytes[..bytes.len() / 2])?;
    }
    // Many small blocks, one of them missing.
    let mut writer = Writer::new(Vec::new(), &setup.meta())?;
    let mut count = 0;
    let end = setup.events(|event| {
        writer.write(event).expect("writing to memory");
        count += 1;
        if count % 150 == 0 {
            writer.flush().expect("writing to memory");
        }
    });
    let bytes = writer.finish(end)?;
    let mut reader = Reader::from_reader(&bytes[..])?;
    let mut starts = Vec::new();
    while let Some(mut block) = reader.next_block()? {
        starts.push(block.offset() as usize);
        while block.next_event().is_some() {}
    }
    let mut gap = bytes.clone();
    gap.drain(starts[1]..starts[2]);
    assert!(!Profile::read(&gap[..])?.damage.is_empty());
    fs::write(files.join("gap"), &gap)?;
    starts.push(bytes.len());
    for (number, block) in starts.windows(2).enumerate() {
        // A few are enough: the definitions, the first samples, the end.
        if number < 3 || number + 2 == starts.len() {
            let body = &bytes[block[0] + HEADER..block[1]];
            fs::write(blocks.join(format!("block-{number}")), body)?;
        }
    }
    Ok(())
}
