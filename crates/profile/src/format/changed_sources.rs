//! The sources that differ from the header's sources. Each block repeats them, so that no block
//! depends on another.

use crate::event::{SourceDefinition, SourceId};
use crate::meta::Source;

/// A source that began, or whose period changed, since the header was written.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) id: SourceId,
    /// `None` if only its period differs.
    definition: Option<Source>,
    pub(crate) period: u64,
}

impl Changed {
    /// The definition with the current period, if the header does not have it.
    pub(crate) fn definition(&self) -> Option<SourceDefinition<'_>> {
        let definition = self.definition.as_ref()?.definition();
        Some(SourceDefinition {
            period: self.period,
            ..definition
        })
    }
}

/// Sources in the order of their first change.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedSources(Vec<Changed>);

impl ChangedSources {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Changed> {
        self.0.iter()
    }

    pub(crate) fn define(&mut self, id: SourceId, definition: SourceDefinition<'_>) {
        let source = self.of(id);
        source.period = definition.period;
        source.definition = Some(definition.into());
    }

    pub(crate) fn set_period(&mut self, id: SourceId, period: u64) {
        self.of(id).period = period;
    }

    fn of(&mut self, id: SourceId) -> &mut Changed {
        let known = self.0.iter().position(|known| known.id == id);
        let at = known.unwrap_or_else(|| {
            self.0.push(Changed {
                id,
                definition: None,
                period: 0,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}
