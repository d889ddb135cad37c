package sink

import (
	"crypto/tls"
	"errors"

	"github.com/IBM/sarama"
)

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// ErrorClass is the error of a try in one of a few words: timeout, leadership,
// replicas, topic, authorization, record, producer, broker, certificate, cluster
// (it is another one) or connection (no broker answered).
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
	switch code {
	case sarama.ErrRequestTimedOut:
		return "timeout"
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch:
		return "leadership"
	case sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend:
		return "replicas"
	case sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic:
		return "topic"
	case sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed:
		return "authorization"
	case sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidMessage, sarama.ErrInvalidRecord, sarama.ErrInvalidTimestamp:
		return "record"
	case sarama.ErrOutOfOrderSequenceNumber, sarama.ErrUnknownProducerID, sarama.ErrInvalidProducerEpoch, sarama.ErrProducerFenced:
		return "producer"
	default:
		return "broker"
	}
}
