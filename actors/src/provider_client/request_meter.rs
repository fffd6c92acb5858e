//! Accounting of one attempt, from before it is sent until its usage record is written, however it
//! ends.

use std::sync::Arc;

use crate::conversation::{Message, StopReason, Usage};
use crate::cost::{Billing, Budget, ModelPricing, PriceLookup, TokenRates, UsageSource};
use crate::event::{Durability, Event, Origin};
use crate::guarded::Guarded;
use crate::ledger::{
    BudgetHandle, BudgetMsg, HeldReservation, TokenCalibration, WorstCaseCost, is_another,
};
use crate::ports::{BoxError, Completion, ProviderError, ProviderInfo, Request};
use crate::provider_client::retry::empty_reply;
use crate::transcript_writer::Transcript;

/// Number of input or output tokens above which the counts of a provider are implausible and not
/// used.
const PLAUSIBLE_MAX: u64 = 10_000_000;

/// Maximum tokens of a reply under a budget, for a model whose maximum is unknown.
const UNKNOWN_OUTPUT_MAX: u64 = 8192;

/// Minimum tokens of a reply under a budget: an attempt for which the budget pays fewer is not
/// sent, unless the reply itself is limited to fewer.
const OUTPUT_MIN: u64 = 4096;

/// Arguments for the accounting of one attempt.
pub(crate) struct MeterArgs {
    pub(crate) budget_handle: BudgetHandle,
    pub(crate) transcript: Transcript,
    pub(crate) origin: Arc<Origin>,
    /// Number of the requested reply within the invocation, from 1.
    pub(crate) turn: u32,
    /// Number of the attempt for its model request, from 1.
    pub(crate) attempt: u32,
    pub(crate) info: ProviderInfo,
    pub(crate) price: Option<PriceLookup>,
    pub(crate) calibration: TokenCalibration,
}

/// Accounting of one attempt. Any clone can end it; the first end counts.
#[derive(Clone)]
pub(crate) struct RequestMeter(Arc<RequestCounter>);

struct RequestCounter {
    args: MeterArgs,
    number: u64,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    stage: MeterStage,
    permit: Option<HeldReservation>,
    /// True if the budget lowered the maximum length of the reply.
    lowered: bool,
    /// Token counts that the provider has reported so far; `None` if it has reported none.
    seen: Option<Usage>,
    /// Number of messages that were sent, and the last of them; `None` without a budget.
    sent: Option<(usize, Arc<Message>)>,
}

#[derive(Default)]
enum MeterStage {
    /// The attempt was not sent yet.
    #[default]
    Waiting,
    Asked,
    /// The usage is in the accounts, but the record is not written yet.
    Counted(Box<Event>),
    Over,
}

/// A reply with its usage record.
pub(crate) struct MeteredReply {
    pub(crate) completion: Completion,
    pub(crate) receipt: Receipt,
}

impl std::fmt::Debug for MeteredReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MeteredReply").field(&self.completion).finish()
    }
}

/// Usage record of a reply, which is not written yet. It is written on drop as well, because the
/// cost is incurred in any case.
pub(crate) struct Receipt(RequestMeter);

impl Receipt {
    /// Writes the record. To be called when the records of the reply are written.
    pub(crate) fn file(self) {
        drop(self);
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let counter = &self.0.0;
        counter.file(&mut counter.state.lock());
    }
}

impl RequestMeter {
    pub(crate) fn new(args: MeterArgs) -> RequestMeter {
        let number = args.budget_handle.number();
        RequestMeter(Arc::new(RequestCounter { args, number, state: Guarded::default() }))
    }

    /// Permits the attempt to be sent: at once without a budget, otherwise when its worst case is
    /// reserved and the reservation is recorded. Returns the request, under a budget with a maximum
    /// length of the reply. Errors: the budget refuses, no price is known, the record cannot be
    /// written, or the attempt was cancelled.
    pub(crate) async fn admit(&self, mut request: Request) -> Result<Request, ProviderError> {
        let RequestCounter { args, number, .. } = &*self.0;
        let whose = &args.origin.invocation_id;
        let budget = args.budget_handle.budget_of(whose);
        if !budget.is_limited() {
            self.0.state.lock().stage = MeterStage::Asked;
            return Ok(request);
        }
        let need = self.need(&request, budget)?;
        let permit = match args.budget_handle.permit(whose, *number, need).await {
            Some(Ok(permit)) => permit,
            Some(Err(refused)) => {
                return Err(not_sent(ProviderError::BUDGET, refused));
            }
            None => return Err(requester_gone()),
        };
        let (output, amount) = (permit.output, permit.amount);
        {
            let mut state = self.0.state.lock();
            if !matches!(state.stage, MeterStage::Waiting) {
                return Err(requester_gone());
            }
            state.permit = Some(permit);
            state.lowered = output < need.output;
            state.sent =
                request.messages.last().map(|last| (request.messages.len(), Arc::clone(last)));
        }
        let reserved = Event::BudgetReserved {
            request: *number,
            nano_usd: amount.nano_usd,
            tokens: amount.tokens,
        };
        let recorded = args.transcript.record(Some(&args.origin), reserved, Durability::Written);
        if let Err(unrecorded) = recorded.await {
            return Err(not_sent(ProviderError::JOURNAL, unrecorded.cause));
        }
        request.tokens_max = Some(output);
        let mut state = self.0.state.lock();
        if !matches!(state.stage, MeterStage::Waiting) {
            return Err(requester_gone());
        }
        state.stage = MeterStage::Asked;
        Ok(request)
    }

    fn need(&self, request: &Request, budget: Budget) -> Result<WorstCaseCost, ProviderError> {
        let args = &self.0.args;
        let unknown = ModelPricing::default();
        let pricing = args.price.as_ref().map_or(&unknown, PriceLookup::pricing);
        let rates = pricing.rates.as_ref();
        if budget.nano_usd.is_some() && rates.is_none() {
            let what =
                format!("no price is known for {} of {}", args.info.model, args.info.profile);
            return Err(not_sent(ProviderError::BUDGET, what));
        }
        let known = pricing.output_max.unwrap_or(UNKNOWN_OUTPUT_MAX);
        Ok(WorstCaseCost {
            input: args.calibration.tokens_max(&args.info, request),
            input_price: rates.map_or(0, TokenRates::input_max),
            output_price: rates.map_or(0, |rates| rates.output),
            output: request.tokens_max.map_or(known, |wanted| wanted.min(known)),
            output_min: OUTPUT_MIN,
        })
    }

    /// Looks up the price, so that it is known when the reply has arrived.
    pub(crate) fn warm(&self) {
        if let Some(price) = &self.0.args.price {
            price.pricing();
        }
    }

    /// Stores the token counts so far of a reply that is still arriving.
    pub(crate) fn observe_usage(&self, usage: Usage) {
        self.0.state.lock().seen = Some(usage);
    }

    /// Returns the reply, or an error if it ended normally without text and calls. Stores its token
    /// counts then, unless they are implausible.
    pub(crate) fn nonempty(&self, completion: Completion) -> Result<Completion, ProviderError> {
        let Some(error) = empty_reply(&completion, &self.0.args.info.profile) else {
            return Ok(completion);
        };
        let (usage, counted, _) = read(&completion);
        if matches!(counted, UsageSource::Reported | UsageSource::Partly) {
            self.observe_usage(usage);
        }
        Err(error)
    }

    /// Ends the accounting with a reply: adds its usage to the accounts, and returns it with its
    /// usage record. Removes implausible token counts from the reply. Warns if the budget cut the
    /// reply, or if another model answered. Adds nothing if the accounting has ended already.
    pub(crate) fn answered(self, mut completion: Completion) -> MeteredReply {
        let RequestCounter { args, .. } = &*self.0;
        let (usage, counted, claimed) = read(&completion);
        if claimed.is_some() {
            completion.usage = None;
        }
        let mut state = self.0.state.lock();
        // The invocation was stopped just before.
        if !matches!(state.stage, MeterStage::Asked) {
            drop(state);
            return MeteredReply { completion, receipt: Receipt(self) };
        }
        if counted == UsageSource::Reported
            && let Some((messages, last)) = state.sent.take()
        {
            let tokens = usage.input_tokens.unwrap_or_default();
            args.calibration.counted(&args.info, messages, last, tokens);
        }
        if state.lowered && completion.stop_reason == StopReason::MaxTokens {
            let message = "the reply is cut off where the budget ends".to_owned();
            args.transcript.note(Some(&args.origin), Event::Warning { message });
        }
        let answered_by = completion.model.clone().filter(|model| *model != args.info.model);
        // Without a price, as for an alias that only a gateway knows, the model that answered makes
        // no difference to the cost.
        let has_price = args.price.as_ref().is_some_and(|price| price.pricing().rates.is_some());
        if let Some(model) = &answered_by
            && has_price
            && is_another(&args.info.model, model)
            && args.budget_handle.is_news(&args.info.model, model)
        {
            let ProviderInfo { profile, model: asked, endpoint: _ } = &args.info;
            let message = format!(
                "{asked} via {profile} was asked, and {model} answered: its tokens are counted at \
                 the price of {asked}"
            );
            args.transcript.note(Some(&args.origin), Event::Warning { message });
        }
        let billing = Billing { answered_by, claimed, ..self.0.billing("answered", counted) };
        self.0.count(&mut state, usage, billing);
        drop(state);
        MeteredReply { completion, receipt: Receipt(self) }
    }

    /// Ends the accounting with a failure: with a usage record if the provider may have done work,
    /// otherwise by releasing the reservation.
    pub(crate) fn failed(&self, error: &ProviderError) {
        let works = matches!(
            error,
            ProviderError::Cut { .. }
                | ProviderError::Broken { .. }
                | ProviderError::Empty { .. }
                | ProviderError::Repeating { .. }
                | ProviderError::Filtered { .. }
        );
        if works || self.0.state.lock().seen.is_some() {
            self.0.cut(error.class());
        } else {
            self.0.release();
        }
    }

    /// Ends the accounting with the token counts reported so far, for a reply that was cut off. If
    /// the attempt was not sent, releases the reservation instead. `outcome`: the reason.
    pub(crate) fn cut(&self, outcome: &str) {
        self.0.cut(outcome);
    }
}

impl RequestCounter {
    fn cut(&self, outcome: &str) {
        let mut state = self.state.lock();
        match state.stage {
            MeterStage::Asked => {
                let (usage, counted) = match state.seen {
                    Some(usage) => (usage, UsageSource::Partly),
                    None => (Usage::default(), UsageSource::Unknown),
                };
                let billing = self.billing(outcome, counted);
                self.count(&mut state, usage, billing);
            }
            MeterStage::Waiting => self.give_back(&mut state),
            MeterStage::Counted(_) | MeterStage::Over => {}
        }
        self.file(&mut state);
    }

    /// Ends the accounting without usage and releases the reservation, because the provider did no
    /// work.
    fn release(&self) {
        let mut state = self.state.lock();
        if matches!(state.stage, MeterStage::Waiting | MeterStage::Asked) {
            self.give_back(&mut state);
        }
    }

    fn give_back(&self, state: &mut State) {
        state.stage = MeterStage::Over;
        if state.permit.take().is_some() {
            let released = Event::BudgetReleased { request: self.number };
            self.args.transcript.note(Some(&self.args.origin), released);
        }
    }

    fn billing(&self, outcome: &str, counted: UsageSource) -> Billing {
        Billing {
            request: self.number,
            provider: self.args.info.profile.clone(),
            model: self.args.info.model.clone(),
            attempt: self.args.attempt,
            outcome: outcome.to_owned(),
            counted,
            ..Billing::default()
        }
    }

    /// Adds the usage to the accounts and prepares its record.
    fn count(&self, state: &mut State, usage: Usage, mut billing: Billing) {
        let args = &self.args;
        let rates = args.price.as_ref().and_then(|price| price.pricing().rates.as_ref());
        billing.cost_nano_usd = rates.and_then(|rates| rates.cost(&usage));
        billing.prices = rates.map(|rates| rates.version.clone());
        if let Some(permit) = state.permit.take() {
            if billing.counted != UsageSource::Reported {
                billing.charged = Some(permit.amount);
            }
            permit.spend();
        }
        let billing = Box::new(billing);
        let event = Event::ModelUsage { turn: args.turn, usage, billing: Some(billing.clone()) };
        state.stage = MeterStage::Counted(Box::new(event));
        let origin = Arc::clone(&args.origin);
        args.budget_handle.tell(BudgetMsg::Line { origin, usage, billing });
    }

    /// Writes the prepared usage record, if there is one.
    fn file(&self, state: &mut State) {
        if let MeterStage::Counted(_) = state.stage
            && let MeterStage::Counted(event) =
                std::mem::replace(&mut state.stage, MeterStage::Over)
        {
            self.args.transcript.note(Some(&self.args.origin), *event);
        }
    }
}

impl Drop for RequestCounter {
    fn drop(&mut self) {
        // All holders are gone; record the attempt as dropped.
        self.cut("dropped");
    }
}

/// Token counts of a reply, their reliability, and the counts of the provider if they are
/// implausible.
fn read(completion: &Completion) -> (Usage, UsageSource, Option<Usage>) {
    let Some(usage) = completion.usage else {
        return (Usage::default(), UsageSource::Unknown, None);
    };
    let said = completion.message.content.as_deref().is_some_and(|text| !text.is_empty())
        || !completion.message.tool_calls.is_empty();
    let is_much = |tokens: Option<u64>| tokens.is_some_and(|tokens| tokens > PLAUSIBLE_MAX);
    let is_nothing = usage.input_tokens == Some(0) && usage.output_tokens == Some(0) && said;
    if is_nothing || is_much(usage.input_tokens) || is_much(usage.output_tokens) {
        return (Usage::default(), UsageSource::Doubtful, Some(usage));
    }
    let counted = match (usage.input_tokens, usage.output_tokens) {
        (Some(_), Some(_)) => UsageSource::Reported,
        (None, None) => UsageSource::Unknown,
        _ => UsageSource::Partly,
    };
    (usage, counted, None)
}

/// Error for an attempt that was cancelled, or whose session has ended.
fn requester_gone() -> ProviderError {
    not_sent(ProviderError::JOURNAL, "the request was cancelled")
}

fn not_sent(class: &'static str, source: impl Into<BoxError>) -> ProviderError {
    ProviderError::Unasked { class, source: source.into() }
}
