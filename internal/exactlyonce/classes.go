package exactlyonce

// Class is what an answer says about its request.
type Class uint8

// The classes of answers. After Silence, the request may take effect now, later or never.
const (
	OK Class = iota + 1
	Silence
	Again      // the request had no effect; ask again
	Busy       // the markers of the last transaction are still being written; ask again
	Ended      // the coordinator has no open transaction of this producer: it was committed, was aborted, or never began
	Superseded // another epoch is the current one
	Refused    // the request had no effect, and asking again does not help
	Forbidden  // of Produce: nothing was appended, and the topic takes no record of ours
)

// Cause says why a transaction was aborted.
type Cause string

// The causes.
const (
	Unanswered   Cause = "unanswered"     // a request was not answered, or its answer left its outcome open
	RowRefused   Cause = "row_refused"    // Kafka refused a row that the journal names, or that an unanswered try may have appended
	Stuck        Cause = "stuck"          // nothing was acknowledged for too long
	EndedByKafka Cause = "ended_by_kafka" // a broker said that the transaction is over, or that its epoch is not the current one
)

// Causes returns all causes, as texts.
func Causes() []string {
	return []string{string(Unanswered), string(RowRefused), string(Stuck), string(EndedByKafka)}
}

// causeOf returns the cause for a transaction that is in doubt after an answer of this class.
func causeOf(c Class) Cause {
	if c == Superseded || c == Ended {
		return EndedByKafka
	}
	return Unanswered
}

// Kafka's error codes that matter for the outcome of a request.
const (
	codeUnknown                = -1
	codeNone                   = 0
	codeUnknownTopic           = 3
	codeRequestTimedOut        = 7
	codeTooLarge               = 10
	codeNetworkException       = 13
	codeLoading                = 14
	codeNotAvailable           = 15
	codeNotCoordinator         = 16
	codeInvalidTopic           = 17
	codeRecordListTooLarge     = 18
	codeNotEnoughAfterAppend   = 20
	codeTopicAuthorization     = 29
	codeInvalidTimestamp       = 32
	codeUnsupportedFormat      = 43
	codePolicyViolation        = 44
	codeDuplicate              = 46
	codeInvalidEpoch           = 47
	codeInvalidState           = 48
	codeInvalidMapping         = 49
	codeConcurrent             = 51
	codeInvalidRecord          = 87
	codeFenced                 = 90
	codeTransactionAbortable   = 120
	codeOutOfOrder             = 45
	codeUnknownProducer        = 59
	codeNotEnoughReplicas      = 19
	codeTransactionIDForbidden = 53
)

// Classify returns the class of an error code that answers a request. appended says that the broker named
// an offset together with the error.
func Classify(kind Kind, code int16, appended bool) Class {
	switch kind {
	case Commit:
		// EndTxn does not say which transaction it ends. INVALID_TXN_STATE (48) may be about a transaction
		// that ended before, and NOT_COORDINATOR (16) can come after the decision was written. So only 0 is
		// an answer.
		if code == codeNone {
			return OK
		}
		return Silence
	case Produce:
		return classifyProduce(code, appended)
	}
	switch code {
	case codeNone:
		return OK
	case codeConcurrent:
		return Busy
	case codeInvalidState:
		return Ended
	case codeInvalidEpoch, codeFenced, codeInvalidMapping:
		return Superseded
	case codeUnknownTopic, codeInvalidTopic, codeTopicAuthorization:
		return Refused
	}
	return Again
}

func classifyProduce(code int16, appended bool) Class {
	switch {
	case code == codeNone, code == codeDuplicate:
		return OK
	case appended:
		return Silence
	}
	switch code {
	case codeTooLarge, codeRecordListTooLarge, codeInvalidTimestamp, codeInvalidRecord:
		return Refused
	case codeTopicAuthorization, codeInvalidTopic, codeUnsupportedFormat, codePolicyViolation:
		return Forbidden
	case codeInvalidEpoch, codeFenced, codeOutOfOrder, codeUnknownProducer, codeInvalidMapping, codeTransactionAbortable:
		return Superseded // it may be so; a seal finds out
	case codeRequestTimedOut, codeNotEnoughAfterAppend, codeUnknown, codeNetworkException:
		return Silence
	}
	return Again // also 19 and 48: a broker may return them when it verifies the transaction
}
