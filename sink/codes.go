package sink

import (
	"crypto/tls"
	"errors"

	"github.com/IBM/sarama"
)

// meaning is what a broker's error code tells about a try to produce a batch.
type meaning uint8

const (
	// passing: nothing was appended, and another try may succeed. Unknown codes have this meaning, so that no
	// row is charged for an error that brokers will invent.
	passing    meaning = iota
	appended           // the batch was appended, now or by an earlier try
	inDoubt            // the batch may have been appended
	badRecord          // a record is at fault
	damaged            // the batch was damaged in transit, or a record is at fault
	badTopic           // the topic is at fault
	badSetup           // configuration or authorization is at fault: the error will last
	otherState         // the broker knows another sequence or epoch of the producer, or no such producer
	otherEpoch         // the broker has seen a later epoch
)

// codes says what brokers' error codes mean where a batch is produced, and in which class the errors are
// counted (see ErrorClass). doc.go says what follows. Elsewhere the codes mean something else:
// exactlyonce.Classify is for transactions, and machine.learn for answers to Metadata. topicErrorOf has the
// names that fail_on takes.
var codes = map[sarama.KError]struct {
	means meaning
	class string
}{
	sarama.ErrNoError:                 {appended, ""},
	sarama.ErrDuplicateSequenceNumber: {appended, ""},

	sarama.ErrUnknown:                      {inDoubt, ""},
	sarama.ErrNetworkException:             {inDoubt, ""},
	sarama.ErrRequestTimedOut:              {inDoubt, "timeout"},
	sarama.ErrNotEnoughReplicasAfterAppend: {inDoubt, "replicas"},

	sarama.ErrNotEnoughReplicas:       {passing, "replicas"},
	sarama.ErrNotLeaderForPartition:   {passing, "leadership"},
	sarama.ErrLeaderNotAvailable:      {passing, "leadership"},
	sarama.ErrFencedLeaderEpoch:       {passing, "leadership"},
	sarama.ErrUnknownLeaderEpoch:      {passing, "leadership"},
	sarama.ErrUnknownTopicOrPartition: {passing, "topic"}, // until TopicGrace is over

	sarama.ErrMessageSizeTooLarge:    {badRecord, "record"},
	sarama.ErrMessageSetSizeTooLarge: {badRecord, "record"},
	sarama.ErrInvalidTimestamp:       {badRecord, "record"},
	sarama.ErrInvalidRecord:          {badRecord, "record"},
	sarama.ErrInvalidMessage:         {damaged, "record"},

	sarama.ErrInvalidTopic:                {badTopic, "topic"},
	sarama.ErrTopicAuthorizationFailed:    {badTopic, "authorization"},
	sarama.ErrUnsupportedForMessageFormat: {badTopic, "topic"},
	sarama.ErrPolicyViolation:             {badTopic, "topic"},

	sarama.ErrClusterAuthorizationFailed:         {badSetup, "authorization"},
	sarama.ErrTransactionalIDAuthorizationFailed: {badSetup, "authorization"},
	sarama.ErrSASLAuthenticationFailed:           {badSetup, ""},
	sarama.ErrUnsupportedCompressionType:         {badSetup, ""},
	sarama.ErrUnsupportedVersion:                 {badSetup, ""},
	sarama.ErrInvalidRequiredAcks:                {badSetup, ""},
	sarama.ErrInvalidRequest:                     {badSetup, ""},

	sarama.ErrOutOfOrderSequenceNumber: {otherState, "producer"},
	sarama.ErrUnknownProducerID:        {otherState, "producer"},
	sarama.ErrInvalidProducerIDMapping: {otherState, "producer"},
	sarama.ErrProducerFenced:           {otherState, "producer"},
	sarama.ErrInvalidProducerEpoch:     {otherEpoch, "producer"},
}

// ErrorClass returns the class of a try's error, in one word: timeout, leadership, replicas, topic,
// authorization, record, producer, certificate, cluster (the broker belongs to another cluster), connection
// (no broker answered) or broker (any other answer).
func ErrorClass(err error) string {
	var code sarama.KError
	switch {
	case errors.As(err, &code):
	case is[*tls.CertificateVerificationError](err), is[tls.AlertError](err):
		return "certificate"
	case is[*otherCluster](err):
		return "cluster"
	default:
		return "connection"
	}
	if class := codes[code].class; class != "" {
		return class
	}
	return "broker"
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
