package exactlyonce

// Class is what an answer means.
type Class uint8

// The classes. Silence is a lost answer: the request may take effect now, later, or never.
const (
	OK Class = iota + 1
	Silence
	Again      // nothing was done; ask again
	Busy       // the last transaction's markers are still being written; ask again
	Ended      // the coordinator has no such transaction: it ended, one way or the other
	Superseded // another epoch is the current one
	Refused    // nothing was done; asking again does not help
	Forbidden  // of Produce: nothing was done, and the topic takes no record of ours
)

// Cause is why a transaction was aborted.
type Cause string

// The causes.
const (
	Unanswered   Cause = "unanswered"     // a request had no answer, or none that says what became of it
	RowRefused   Cause = "row_refused"    // Kafka refused a row that the journal names, or that an unanswered try may have appended
	Stuck        Cause = "stuck"          // nothing was acknowledged for too long
	EndedByKafka Cause = "ended_by_kafka" // a broker said that it is over, or its epoch not the current one
)

// Causes are all of them.
func Causes() []string {
	return []string{string(Unanswered), string(RowRefused), string(Stuck), string(EndedByKafka)}
}

// causeOf is why a transaction is in doubt after an answer.
func causeOf(c Class) Cause {
	if c == Superseded || c == Ended {
		return EndedByKafka
	}
	return Unanswered
}

// Error codes of Kafka that tell requests' outcomes apart.
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

// Classify says what a code means as the answer to a request. appended: the broker
// named an offset with the error.
func Classify(kind Kind, code int16, appended bool) Class {
	switch kind {
	case Commit:
		// EndTxn has no producer of its own: 48 may be the answer to a transaction that
		// ended before, 16 comes after the decision was written. Only 0 is an answer.
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
		return Superseded // find out by a seal
	case codeRequestTimedOut, codeNotEnoughAfterAppend, codeUnknown, codeNetworkException:
		return Silence
	}
	return Again // 19 and 48 may be the broker's check of the transaction
}
