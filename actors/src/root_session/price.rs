//! What a model costs, as far as whoever starts the session knows.

use std::fmt;
use std::sync::Arc;

use crate::conversation::Usage;

type Of = dyn Fn(&Usage) -> Option<f64> + Send + Sync;

/// Turns tokens into US dollars.
#[derive(Clone)]
pub struct Price(Arc<Of>);

impl Price {
    /// `of` is asked once, at the end of the session; `None` is unknown.
    pub fn new(of: impl Fn(&Usage) -> Option<f64> + Send + Sync + 'static) -> Price {
        Price(Arc::new(of))
    }

    pub(in crate::root_session) fn of(&self, usage: &Usage) -> Option<f64> {
        (self.0)(usage)
    }
}

impl fmt::Debug for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Price")
    }
}
