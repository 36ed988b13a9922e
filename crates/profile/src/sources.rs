//! The sources of a profile during reading: the current period of each source, and the number of
//! samples that were left out because this version does not know their meaning.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::event::{SourceDefinition, SourceId};
use crate::meta::{Source, Unit};
use crate::model::{Profile, Sampling, SamplingId};

/// The largest number of different reasons that are noted separately.
const MAX_REASONS: usize = 20;

/// At most this many characters of a name from a later version are shown.
const MAX_NAME: usize = 40;

/// A source at a point in the file.
#[derive(Clone, Copy, Debug)]
struct InForce {
    /// An index into [`Profile::sources`].
    source: SourceId,
    /// `Err`: the reason why its samples are left out, an index into [`Sources::left_out`].
    sampling: Result<(SamplingId, Unit), usize>,
}

/// The reason why samples or events were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Kind(String),
    Unit(String),
    Distances(String),
    /// An allocation of a source that does not count bytes, or a time sample of a source that
    /// counts bytes.
    Mismatch,
    Lost,
    Event(u8),
    Others,
}

/// All sources at the current point of the file.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    /// The current sources, indexed by the file's numbers.
    in_force: Vec<Option<InForce>>,
    samplings: HashMap<Sampling, SamplingId, RandomState>,
    left_out: Vec<(Reason, u64)>,
}

impl Sources {
    /// Called at the start of a file, whose description has these sources. Sources of earlier files
    /// stay in the profile's tables, and a known source is not added again.
    pub(crate) fn begin(&mut self, profile: &mut Profile, sources: &[Source]) {
        self.in_force.clear();
        self.left_out.clear();
        let earlier = profile.sources.len();
        for definition in sources {
            let alike = profile.sources[..earlier].iter().position(|known| {
                let period = known.period;
                *known
                    == Source {
                        period,
                        ..definition.clone()
                    }
            });
            // The tables cannot number more sources; further ones have no definition.
            let source = u16::try_from(alike.unwrap_or(profile.sources.len())).map(SourceId);
            let Ok(source) = source else {
                self.in_force.push(None);
                continue;
            };
            if alike.is_none() {
                profile.sources.push(definition.clone());
            }
            self.in_force.push(Some(InForce {
                source,
                // Set below, by `set_period`.
                sampling: Err(0),
            }));
            let number = SourceId((self.in_force.len() - 1) as u16);
            self.set_period(profile, number, definition.period);
        }
    }

    /// The number in the profile's table of a source of the file.
    pub(crate) fn number(&self, number: SourceId) -> Option<SourceId> {
        let known = self.in_force.get(number.index()).copied().flatten();
        known.map(|known| known.source)
    }

    /// Sets the definition of a source from here on.
    pub(crate) fn define(
        &mut self,
        profile: &mut Profile,
        number: SourceId,
        definition: SourceDefinition<'_>,
    ) {
        let known = self.in_force.get(number.index()).copied().flatten();
        let repeated = known.is_some_and(|known| {
            let before = &profile.sources[known.source.index()];
            let period = before.period;
            before.definition()
                == SourceDefinition {
                    period,
                    ..definition
                }
        });
        if !repeated {
            // The tables cannot number more sources; further ones have no definition.
            let Ok(source) = u16::try_from(profile.sources.len()) else {
                return;
            };
            profile.sources.push(definition.into());
            if self.in_force.len() <= number.index() {
                self.in_force.resize(number.index() + 1, None);
            }
            self.in_force[number.index()] = Some(InForce {
                source: SourceId(source),
                // Set below, by `set_period`.
                sampling: Err(0),
            });
        }
        self.set_period(profile, number, definition.period);
    }

    /// Sets the period of a source from here on. Does nothing if its definition is lost.
    pub(crate) fn set_period(&mut self, profile: &mut Profile, number: SourceId, period: u64) {
        let Some(Some(InForce { source, .. })) = self.in_force.get(number.index()).copied() else {
            return;
        };
        let definition = &profile.sources[source.index()];
        let sampling = match Sampling::of(source, definition, period) {
            Some(sampling) => Ok((self.intern(profile, sampling), sampling.unit)),
            None => Err(self.reason(why_unknown(definition))),
        };
        self.in_force[number.index()] = Some(InForce { source, sampling });
    }

    /// The number of a sampling in the profile's table.
    pub(crate) fn intern(&mut self, profile: &mut Profile, sampling: Sampling) -> SamplingId {
        *self.samplings.entry(sampling).or_insert_with(|| {
            profile.samplings.push(sampling);
            SamplingId(profile.samplings.len() as u32 - 1)
        })
    }

    /// The sampling of a sample from this source; `None` if the sample must be left out. Then it is
    /// counted.
    #[inline]
    pub(crate) fn sampling(&mut self, number: SourceId, unit: Unit) -> Option<SamplingId> {
        match self.in_force.get(number.index()) {
            Some(&Some(InForce {
                sampling: Ok((sampling, its_unit)),
                ..
            })) if its_unit == unit => Some(sampling),
            other => {
                let reason = match other.copied().flatten() {
                    Some(InForce {
                        sampling: Err(reason),
                        ..
                    }) => reason,
                    Some(_) => self.reason(Reason::Mismatch),
                    None => self.reason(Reason::Lost),
                };
                self.left_out[reason].1 += 1;
                None
            }
        }
    }

    /// Counts an event of a later version that is left out.
    pub(crate) fn skip_event(&mut self, kind: u8) {
        let reason = self.reason(Reason::Event(kind));
        self.left_out[reason].1 += 1;
    }

    /// Descriptions of the samples and events that were left out, a sentence each.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let left_out = self.left_out.iter().filter(|(_, count)| *count > 0);
        left_out.map(|(reason, count)| {
            let newer = "left out; use a newer nthbyte";
            let unknown = format!("{count} samples of a source that this version does not know");
            match reason {
                Reason::Kind(name) => format!("{unknown} (kind `{name}`) were {newer}"),
                Reason::Unit(name) => format!("{unknown} (unit `{name}`) were {newer}"),
                Reason::Distances(name) => format!("{unknown} (distances `{name}`) were {newer}"),
                Reason::Mismatch => {
                    format!("{count} samples that do not fit their source were {newer}")
                }
                Reason::Lost => {
                    format!("{count} samples of a source whose definition is lost were left out")
                }
                Reason::Event(kind) => {
                    format!("{count} events that this version does not know (kind {kind}) were {newer}")
                }
                Reason::Others => {
                    format!("{count} more samples or events that this version does not know were {newer}")
                }
            }
        })
    }

    /// The index of a reason.
    fn reason(&mut self, reason: Reason) -> usize {
        let find = |left_out: &[(Reason, u64)], reason: &Reason| {
            left_out.iter().position(|(known, _)| known == reason)
        };
        if let Some(known) = find(&self.left_out, &reason) {
            return known;
        }
        let is_full = self.left_out.len() >= MAX_REASONS;
        if is_full && let Some(others) = find(&self.left_out, &Reason::Others) {
            return others;
        }
        self.left_out
            .push((if is_full { Reason::Others } else { reason }, 0));
        self.left_out.len() - 1
    }
}

/// The first name of a source that this version does not know.
fn why_unknown(source: &Source) -> Reason {
    let name = |name: &str| name.chars().take(MAX_NAME).collect();
    if source.kind().is_none() {
        Reason::Kind(name(&source.kind))
    } else if source.unit().is_none() {
        Reason::Unit(name(&source.unit))
    } else {
        Reason::Distances(name(&source.distances))
    }
}
